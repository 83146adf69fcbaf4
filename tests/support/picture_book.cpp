#include "support/picture_book.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>
#include <limits>
#include <stdexcept>
#include <utility>

namespace flux2::test {
namespace {

struct Rgb {
    double r = 0, g = 0, b = 0;  // 0..1
};

Rgb operator*(Rgb x, Rgb y) {
    return {x.r * y.r, x.g * y.g, x.b * y.b};
}

Rgb lerp(Rgb x, Rgb y, double t) {
    return {x.r + (y.r - x.r) * t, x.g + (y.g - x.g) * t, x.b + (y.b - x.b) * t};
}

double dot(Rgb x, Rgb y) {
    return x.r * y.r + x.g * y.g + x.b * y.b;
}

// ---- The world's colours, from painter/palette.py and painter/landscape.py ----

const Rgb kWhite = {1, 1, 1}, kInk = {.05, .06, .10};

struct Sky {
    std::string name;
    Rgb top, middle, low, cloud_top, cloud_low;
    Rgb on_ground, on_things;  // colour of the light
    Rgb light;                 // sun, or moon at night
    Rgb glow;                  // around it
};
const std::array<Sky, 4> kSkies = {{
    {"day",
     {.25, .55, .93},
     {.52, .77, .98},
     {.86, .95, 1},
     {1, 1, 1},
     {.85, .91, .98},
     {1, 1, 1},
     {1, 1, 1},
     {1, .93, .48},
     {1, .88, .55}},
    {"sunset",
     {.33, .22, .52},
     {.90, .45, .45},
     {1, .76, .42},
     {1, .80, .72},
     {.86, .50, .52},
     {1, .80, .70},
     {1, .94, .88},
     {1, .62, .28},
     {1, .88, .55}},
    {"night",
     {.03, .05, .17},
     {.07, .11, .30},
     {.17, .23, .47},
     {.24, .29, .50},
     {.13, .17, .36},
     {.36, .42, .66},
     {.80, .83, .97},
     {.97, .95, .84},
     {.80, .86, 1}},
    {"cloudy",
     {.53, .58, .66},
     {.66, .71, .77},
     {.82, .85, .88},
     {.93, .94, .96},
     {.62, .66, .72},
     {.84, .86, .90},
     {.95, .95, .97},
     {.93, .94, .96},
     {.93, .94, .96}},
}};

struct Ground {
    std::string name;
    Rgb far, near, far_hill, near_hill;
    Rgb texture;  // mixed in up to a fifth, not tinted by the light
};
const std::array<Ground, 4> kGrounds = {{
    {"grass", {.56, .78, .35}, {.27, .58, .22}, {.49, .71, .47}, {.37, .63, .32}, {.10, .34, .10}},
    {"sand", {.97, .88, .66}, {.88, .70, .42}, {.90, .77, .52}, {.85, .68, .40}, {.55, .36, .16}},
    {"snow", {.98, .99, 1}, {.78, .87, .96}, {.84, .90, .97}, {.91, .95, .99}, {.52, .68, .90}},
    {"sea", {.36, .69, .86}, {.08, .33, .62}, {.42, .63, .56}, {.33, .55, .42}, {1, 1, 1}},
}};

struct Colour {
    std::string name;
    Rgb main;
};
const std::array<Colour, 10> kColours = {{{"red", {.87, .15, .15}},
                                          {"orange", {.98, .52, .10}},
                                          {"yellow", {.99, .84, .18}},
                                          {"green", {.20, .66, .27}},
                                          {"blue", {.15, .38, .88}},
                                          {"purple", {.54, .24, .74}},
                                          {"pink", {.98, .52, .73}},
                                          {"white", {.96, .96, .96}},
                                          {"black", {.13, .13, .16}},
                                          {"brown", {.47, .28, .15}}}};

// ---- Where things are, from world/scene.py and painter/things.py ----

// The part of a thing that is painted in its colour, in units of its size; y upwards from where it
// stands or hangs.
struct Kind {
    std::string name;
    bool floats = false;
    double half_width = 0, bottom = 0, top = 0;
};
const std::array<Kind, 10> kKinds = {{
    {"house", false, .37, 0, .50},       // the wall
    {"tree", false, .40, .33, .97},      // the crown
    {"balloon", true, .35, -.20, .50},   // above the basket
    {"boat", false, .40, -.10, .20},     // the hull; sails are always white
    {"ball", false, .27, .03, .57},      //
    {"star", true, .30, -.30, .32},      //
    {"heart", true, .36, -.25, .40},     //
    {"flower", false, .26, .45, .95},    // the petals
    {"mushroom", false, .42, .42, .85},  // the cap
    {"rocket", true, .17, -.30, .28},    // between flame and nose
}};

struct Place {
    std::string name;
    double x = 0;  // of the width
};
const std::array<Place, 3> kPlaces = {{{"left", .20}, {"middle", .50}, {"right", .80}}};

// All below this, of the height, is ground or before it: the horizon is at 0.60 to 0.67.
constexpr double kGroundBelow = .70;
constexpr double kStandsAt = .835, kHangsAt = .30;  // of the height
constexpr double kStandsWithin = .025, kHangsWithin = .035, kSideways = .018;

template <typename Table>
const auto& entry(const Table& table, const std::string& name) {
    for (const auto& row : table) {
        if (row.name == name) {
            return row;
        }
    }
    throw std::out_of_range("the world has no '" + name + "'");
}

template <typename Table>
std::vector<std::string> names_of(const Table& table) {
    std::vector<std::string> names;
    for (const auto& row : table) {
        names.push_back(row.name);
    }
    return names;
}

double size_in_pixels(const std::string& size, int width, int height) {
    const double scale = size == "small" ? 0.66 : size == "big" ? 1.30 : 1.0;
    return scale * 0.90 * std::min(width / 3.0, height * 0.36);
}

// ---- Pixels ----

// Columns and rows from first to before last, within the picture.
struct Box {
    int left = 0, right = 0, top = 0, bottom = 0;
};

Box box_within(double left, double right, double top, double bottom, int width, int height) {
    const auto pixel = [](double at, int limit) {
        return std::clamp(static_cast<int>(std::lround(at)), 0, limit);
    };
    return {pixel(left, width), pixel(right, width), pixel(top, height), pixel(bottom, height)};
}

Rgb pixel_at(const Image& image, int x, int y) {
    const size_t at =
        3 * (static_cast<size_t>(y) * static_cast<size_t>(image.width) + static_cast<size_t>(x));
    return {image.rgb[at] / 255.0, image.rgb[at + 1] / 255.0, image.rgb[at + 2] / 255.0};
}

template <typename Visit>
void for_each_pixel(const Image& image, const Box& box, Visit visit) {
    for (int y = box.top; y < box.bottom; ++y) {
        for (int x = box.left; x < box.right; ++x) {
            visit(pixel_at(image, x, y));
        }
    }
}

// All mixtures of two colours: a gradient, or a surface in light and shade.
struct Blend {
    Rgb from, to;
};

double distance(Rgb p, const Blend& blend) {
    const Rgb along = {blend.to.r - blend.from.r, blend.to.g - blend.from.g,
                       blend.to.b - blend.from.b};
    const Rgb off = {p.r - blend.from.r, p.g - blend.from.g, p.b - blend.from.b};
    const double length = dot(along, along);
    const double t = length == 0 ? 0 : std::clamp(dot(off, along) / length, 0.0, 1.0);
    const Rgb rest = {off.r - t * along.r, off.g - t * along.g, off.b - t * along.b};
    return std::sqrt(dot(rest, rest));
}

double distance(Rgb p, const std::vector<Blend>& blends) {
    double least = std::numeric_limits<double>::infinity();
    for (const Blend& blend : blends) {
        least = std::min(least, distance(p, blend));
    }
    return least;
}

// Everything that can be behind things under this sky.
std::vector<Blend> landscape(const Sky& sky, const Ground& ground) {
    const auto distant = [&](Rgb colour, double haze) {
        return lerp(colour * sky.on_ground, sky.low, haze);
    };
    const auto shaded = [](Rgb colour) {
        return Blend{colour, lerp(colour, {.08, .09, .20}, .26)};
    };
    std::vector<Blend> blends = {
        {sky.top, sky.middle},
        {sky.middle, sky.low},
        {sky.middle, lerp(sky.middle, sky.glow, .8)},
        {sky.light, sky.light},
        {sky.cloud_top, sky.cloud_low},
        {ground.far * sky.on_ground, ground.near * sky.on_ground},
        shaded(distant({.45, .47, .57}, .22)),  // mountains
        shaded(distant({.97, .98, 1}, .15)),    // and the snow on them
        {distant(ground.far_hill, .35), distant(ground.near_hill, .12)},
    };
    const Rgb middle = lerp(ground.far, ground.near, .5) * sky.on_ground;
    blends.push_back({middle, lerp(middle, ground.texture, .2)});
    if (ground.name == "sea") {
        blends.push_back({middle, lerp(middle, lerp(sky.low, {1, .95, .80}, .6), .6)});  // glitter
    }
    return blends;
}

// A thing's colour under this sky, in the lights and shades that painters mix in.
std::vector<Blend> surface(const Colour& colour, const Sky& sky) {
    const Rgb main = colour.main * sky.on_things;
    return {{main, lerp(main, kWhite, .25)}, {main, lerp(main, kInk, .35)}};
}

// Whose a pixel is that could be a thing's or the landscape's: the nearer one's, or the landscape's
// unless the thing is clearly nearer.
enum class Doubt { nearer, landscape };

// Reads pixels of one picture: which colour of things each has.
class Eye {
  public:
    explicit Eye(const Image& image)
        : image_(image),
          sky_(entry(kSkies, read_sky(image))),
          behind_(landscape(sky_, entry(kGrounds, read_ground(image)))) {
        for (const Colour& colour : kColours) {
            surfaces_.push_back(surface(colour, sky_));
        }
    }

    // For each of kColours the share of the box that has it.
    std::vector<double> shares(const Box& box, Doubt doubt) const {
        std::vector<double> found(kColours.size());
        for_each_pixel(image_, box, [&](Rgb pixel) {
            const size_t colour = colour_of(pixel, doubt);
            if (colour < found.size()) {
                ++found[colour];
            }
        });
        for (double& share : found) {
            share /= std::max(1, (box.right - box.left) * (box.bottom - box.top));
        }
        return found;
    }

  private:
    // kColours.size() when it is of none.
    size_t colour_of(Rgb pixel, Doubt doubt) const {
        size_t best = 0;
        double least = std::numeric_limits<double>::infinity();
        for (size_t i = 0; i < surfaces_.size(); ++i) {
            const double d = distance(pixel, surfaces_[i]);
            if (d < least) {
                best = i;
                least = d;
            }
        }
        // Beyond this it is an edge, a shadow or a mixture: the closest two colours, orange and
        // yellow at night, are 0.28 apart.
        const bool unlike = least > 0.12;
        // The sun at sunset is nearly orange, hills at night are nearly black.
        const double lead = doubt == Doubt::landscape ? .04 : 0;
        // By day white things are grey; clouds and snow are bluish but for the brightest.
        const bool plain_white = doubt == Doubt::nearer && kColours[best].name == "white" &&
                                 sky_.name == "day" && std::abs(pixel.b - pixel.r) < .03;
        const bool behind = !plain_white && distance(pixel, behind_) < least + lead;
        return unlike || behind ? kColours.size() : best;
    }

    const Image& image_;
    Sky sky_;
    std::vector<Blend> behind_;
    std::vector<std::vector<Blend>> surfaces_;
};

// Where the coloured part of a thing is.
Box coloured_part(const Place& place, const Kind& kind, double size, int width, int height) {
    const double x = place.x * width;
    const double y = (kind.floats ? kHangsAt : kStandsAt) * height;
    return box_within(x - kind.half_width * size, x + kind.half_width * size, y - kind.top * size,
                      y - kind.bottom * size, width, height);
}

// The name whose colour most pixels of a box have. Those that are far from all of them do not vote;
// empty when none does.
template <typename Table, typename ColourOf>
std::string most_votes(const Image& image, const Box& box, const Table& table, ColourOf colour_of) {
    std::vector<int> votes(table.size());
    for_each_pixel(image, box, [&](Rgb pixel) {
        size_t best = 0;
        double least = 0.2;
        for (size_t i = 0; i < table.size(); ++i) {
            const Rgb colour = colour_of(table[i]);
            const double d = distance(pixel, Blend{colour, colour});
            if (d < least) {
                best = i;
                least = d;
            }
        }
        votes[best] += least < 0.2 ? 1 : 0;
    });
    const auto most = std::max_element(votes.begin(), votes.end());
    return *most == 0 ? "" : table[static_cast<size_t>(most - votes.begin())].name;
}

// What a thing can cover, shadow and island included, wherever exactly it is.
Box reach(const Place& place, const Thing& thing, int width, int height) {
    const bool floats = entry(kKinds, thing.kind).floats;
    const double size = size_in_pixels(thing.size, width, height);
    const double side = .70 * size + kSideways * width;
    const double within = (floats ? kHangsWithin : kStandsWithin) * height;
    const double x = place.x * width;
    const double y = (floats ? kHangsAt : kStandsAt) * height;
    const double above = (floats ? .62 : 1.06) * size + within;
    const double below = (floats ? .70 : .22) * size + within;
    return box_within(x - side, x + side, y - above, y + below, width, height);
}

bool same(const Thing& a, const Thing& b) {
    return a.kind == b.kind && a.colour == b.colour && a.size == b.size;
}

void mark(const Box& box, int width, std::vector<bool>& flags) {
    for (int y = box.top; y < box.bottom; ++y) {
        for (int x = box.left; x < box.right; ++x) {
            flags[static_cast<size_t>(y) * static_cast<size_t>(width) + static_cast<size_t>(x)] =
                true;
        }
    }
}

nlohmann::json read_json(const std::filesystem::path& file) {
    std::ifstream stream(file);
    return nlohmann::json::parse(stream);
}

Scene scene_of(const nlohmann::json& description) {
    Scene scene;
    scene.sky = description.at("sky");
    scene.ground = description.at("ground");
    for (const auto& [place, thing] : description.at("things").items()) {
        scene.things[place] = {thing.at("kind"), thing.at("colour"), thing.at("size")};
    }
    return scene;
}

}  // namespace

const std::vector<std::string>& all_skies() {
    static const std::vector<std::string> names = names_of(kSkies);
    return names;
}

const std::vector<std::string>& all_grounds() {
    static const std::vector<std::string> names = names_of(kGrounds);
    return names;
}

const std::vector<std::string>& all_colours() {
    static const std::vector<std::string> names = names_of(kColours);
    return names;
}

const std::vector<std::string>& all_places() {
    static const std::vector<std::string> names = names_of(kPlaces);
    return names;
}

const std::vector<std::string>& all_kinds() {
    static const std::vector<std::string> names = names_of(kKinds);
    return names;
}

std::vector<HeldOutPrompt> read_held_out_prompts(const std::filesystem::path& file) {
    std::vector<HeldOutPrompt> prompts;
    for (const auto& item : read_json(file)) {
        prompts.push_back({item.at("prompt"), scene_of(item)});
    }
    return prompts;
}

std::vector<Edit> read_edits(const std::filesystem::path& file) {
    std::vector<Edit> edits;
    for (const auto& item : read_json(file)) {
        edits.push_back({item.at("edit"), item.at("prompt"), item.at("reference"),
                         scene_of(item.at("before")), scene_of(item.at("after"))});
    }
    return edits;
}

// The uppermost twentieth is above sun, moon and the highest thing. Clouds and the sun's glow,
// which reach it, are far from all four colours and do not vote.
std::string read_sky(const Image& image) {
    const Box box = box_within(0, image.width, 0, .05 * image.height, image.width, image.height);
    return most_votes(image, box, kSkies, [](const Sky& sky) { return sky.top; });
}

// The lowest twentieth is below the shadow and the island of the largest thing.
std::string read_ground(const Image& image) {
    const std::string sky = read_sky(image);
    if (sky.empty()) {
        return "";
    }
    const Box box =
        box_within(0, image.width, .95 * image.height, image.height, image.width, image.height);
    const Rgb light = entry(kSkies, sky).on_ground;
    return most_votes(image, box, kGrounds,
                      [&](const Ground& ground) { return ground.near * light; });
}

// A thing's colour fills most of its coloured part; dots, doors, windows and sails take less. An
// eighth is what is left of the smallest flower among edges.
std::string read_colour(const Image& image, const std::string& place, const Thing& thing) {
    const double size = size_in_pixels(thing.size, image.width, image.height);
    const Box box = coloured_part(entry(kPlaces, place), entry(kKinds, thing.kind), size,
                                  image.width, image.height);
    const std::vector<double> shares = Eye(image).shares(box, Doubt::nearer);
    const auto most = std::max_element(shares.begin(), shares.end());
    return *most < 1.0 / 8 ? "" : kColours[static_cast<size_t>(most - shares.begin())].name;
}

// Two boxes in the middle of the place, in the sky and on the ground, that neighbours do not reach:
// the smallest thing covers a seventh of one of them.
bool is_empty(const Image& image, const std::string& place) {
    const Eye eye(image);
    const double x = entry(kPlaces, place).x * image.width;
    const double side = .08 * image.width;
    for (const auto& [top, bottom] : {std::pair{.18, .42}, std::pair{.55, .84}}) {
        const Box box = box_within(x - side, x + side, top * image.height, bottom * image.height,
                                   image.width, image.height);
        for (const double share : eye.shares(box, Doubt::landscape)) {
            if (share >= .05) {
                return false;
            }
        }
    }
    return true;
}

std::string mistakes(const Image& image, const Scene& scene) {
    std::string all;
    const auto compare = [&](const std::string& what, const std::string& found,
                             const std::string& expected) {
        if (found != expected) {
            all += (all.empty() ? "" : "; ") + what + ": " + (found.empty() ? "nothing" : found) +
                   ", not " + expected;
        }
    };
    compare("sky", read_sky(image), scene.sky);
    compare("ground", read_ground(image), scene.ground);
    if (read_ground(image).empty()) {
        return all;
    }
    for (const std::string& place : all_places()) {
        const auto thing = scene.things.find(place);
        if (thing == scene.things.end()) {
            compare(place, is_empty(image, place) ? "empty" : "something", "empty");
        } else {
            compare(place + " " + thing->second.kind, read_colour(image, place, thing->second),
                    thing->second.colour);
        }
    }
    return all;
}

std::vector<bool> may_change(const Scene& before, const Scene& after, int width, int height) {
    std::vector<bool> flags(static_cast<size_t>(width) * static_cast<size_t>(height));
    const bool relit = before.sky != after.sky;
    if (relit) {
        mark(box_within(0, width, 0, kGroundBelow * height, width, height), width, flags);
    }
    for (const Place& place : kPlaces) {
        const auto old_thing = before.things.find(place.name);
        const auto new_thing = after.things.find(place.name);
        const bool was = old_thing != before.things.end();
        const bool is = new_thing != after.things.end();
        if (!relit && was && is && same(old_thing->second, new_thing->second)) {
            continue;
        }
        if (was) {
            mark(reach(place, old_thing->second, width, height), width, flags);
        }
        if (is) {
            mark(reach(place, new_thing->second, width, height), width, flags);
        }
    }
    return flags;
}

Image ground_under(const Image& image, const std::string& old_sky, const std::string& new_sky) {
    const Rgb from = entry(kSkies, old_sky).on_ground;
    const Rgb to = entry(kSkies, new_sky).on_ground;
    const std::array<double, 3> factors = {to.r / from.r, to.g / from.g, to.b / from.b};
    Image lit = image;
    for (size_t i = 0; i < lit.rgb.size(); ++i) {
        lit.rgb[i] =
            static_cast<uint8_t>(std::clamp(std::lround(image.rgb[i] * factors[i % 3]), 0L, 255L));
    }
    return lit;
}

double psnr(const Image& a, const Image& b, const std::vector<bool>& without) {
    double sum = 0;
    double n = 0;
    for (size_t i = 0; i < a.rgb.size(); ++i) {
        if (without.empty() || !without[i / 3]) {
            const double d = static_cast<double>(a.rgb[i]) - static_cast<double>(b.rgb.at(i));
            sum += d * d;
            ++n;
        }
    }
    return sum == 0 ? std::numeric_limits<double>::infinity()
                    : 10 * std::log10(255.0 * 255.0 * n / sum);
}

}  // namespace flux2::test
