// Reads the picture-book scenes that the bundled tiny model draws, from pixels alone, so that tests
// can tell whether a picture shows what was asked for. It knows where things stand and which
// colours they have from the program that drew the training pictures (models/tiny/train/painter and
// world), and nothing of what the model makes. Shapes, sizes, backdrop, sun and moon are not read.
#pragma once

#include <flux2/image.hpp>

#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace flux2::test {

// The words are those of the world: sky day, sunset, night, cloudy; ground grass, sand, snow, sea;
// places left, middle, right; ten kinds, ten colours, three sizes.
struct Thing {
    std::string kind, colour, size;
};
struct Scene {
    std::string sky, ground;
    std::map<std::string, Thing> things;  // by place
};

const std::vector<std::string>& all_skies();
const std::vector<std::string>& all_grounds();
const std::vector<std::string>& all_colours();
const std::vector<std::string>& all_places();
const std::vector<std::string>& all_kinds();

// Descriptions as the training program writes them, in tests/fixtures/tiny. Reading them throws
// nlohmann's exceptions for anything unexpected.
struct HeldOutPrompt {
    std::string prompt;
    Scene scene;
};
struct Edit {
    std::string kind, prompt;
    std::string reference;  // a file beside the description
    Scene before, after;
};
// Prompts whose combination of attributes was kept out of training.
std::vector<HeldOutPrompt> read_held_out_prompts(const std::filesystem::path& file);
std::vector<Edit> read_edits(const std::filesystem::path& file);

// Empty for a picture that is none of this world.
std::string read_sky(const Image& image);
std::string read_ground(const Image& image);

// For pictures whose sky and ground can be read: the colour of a thing of this kind and size at the
// place, whatever colour it is said to have; empty when there is none. Two weak spots: under a
// cloudy sky white things have the colour of the clouds and are not seen, and small green ones on
// grass are seen only when their green is the world's.
std::string read_colour(const Image& image, const std::string& place, const Thing& thing);
// Likewise: whether no thing of any kind is at the place. White things are not seen by day either.
bool is_empty(const Image& image, const std::string& place);

// What the picture shows otherwise than the scene says: "sky: night, not day; ..."; empty when all
// is right.
std::string mistakes(const Image& image, const Scene& scene);

// One flag per pixel: what a change of things or sky may touch. For things that is what they can
// cover, shadows included. With another sky it is all but the ground, and that only keeps its looks
// under the new light. Both scenes must have the same ground.
std::vector<bool> may_change(const Scene& before, const Scene& after, int width, int height);

// The picture with its ground lit by another sky; nothing but the ground is right.
Image ground_under(const Image& image, const std::string& old_sky, const std::string& new_sky);

// PSNR in dB over the pixels that are not flagged; of all when there are no flags. Infinite for
// equal pictures. Both must have the same size.
double psnr(const Image& a, const Image& b, const std::vector<bool>& without = {});

}  // namespace flux2::test
