// FLUX.2 image models: load one, make pictures with it.
//
//     flux2::Pipeline pipeline = flux2::Pipeline::load(flux2::find_model("klein-4b").files);
//     flux2::Request request;
//     request.prompt = "a red house by the sea";
//     flux2::save_image("house.png", pipeline.generate(request).image);
//
// Failures are thrown as flux2::Error. Threads: any function may be called from any thread. A
// Pipeline serves one call at a time, but model() and device() may be called meanwhile; different
// pipelines are independent. docs/api.md shows the same functions in C, and what stays between
// versions.
#pragma once

#include <flux2/device.hpp>
#include <flux2/error.hpp>
#include <flux2/image.hpp>
#include <flux2/log.hpp>
#include <flux2/version.hpp>

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace flux2 {

// ---- Model files ----

// The three parts, each a GGUF or safetensors file, a shard of several, or a folder with one
// checkpoint. A part that is not named is taken from the transformer's file when that holds it. The
// text encoder may be missing when features come from a file, the autoencoder when there is TAEF2.
struct ModelFiles {
    std::filesystem::path transformer, text_encoder, vae;
    // TAEF2, the tiny autoencoder: decodes previews and, fast but less exactly, the picture. It
    // also encodes pictures when there is no autoencoder. Empty: none.
    std::filesystem::path taesd = {};
    bool taesd_preview_only = false;  // the autoencoder decodes the picture
};

// Description of a file, from its header alone.
struct FileInfo {
    std::filesystem::path path;
    std::string part;    // "transformer", "text encoder", "autoencoder" or "tiny autoencoder"
    std::string name;    // "FLUX.2 klein 4B"
    std::string format;  // "GGUF" or "safetensors"
    std::string naming;  // whose tensor names: "original", "diffusers", ...
    std::string types;   // "Q8_0 x 80, BF16 x 12"
    // How weights are stored, in words: "FP8 (E4M3) with one scale per matrix x 80, unquantised x
    // 9".
    std::string scheme;
    std::string partners;            // which files it goes with
    std::vector<std::string> notes;  // warnings for the user, such as a missing tokenizer
    int64_t n_parameters = 0;
    uint64_t size_bytes = 0;
    int64_t text_width = 0;       // of the features a transformer takes or an encoder gives
    int64_t latent_channels = 0;  // of a token, for transformer and autoencoders
    std::string variant;          // transformer: "klein", "base", "kv" or "dev"
    std::string variant_reason;   // how that is known
    bool distilled = false;       // made for few steps without guidance
    int default_steps = 0;
    float default_guidance = 0;
    int default_width = 0, default_height = 0;
};

// Throws bad_file for a file that is broken or no part of FLUX.2; unsupported, saying what it is,
// when that is known.
FLUX2_API FileInfo inspect_file(const std::filesystem::path& path);
// The same for every part of a file, since some hold several; inspect_file describes the first.
FLUX2_API std::vector<FileInfo> inspect_parts(const std::filesystem::path& path);

// Why two parts cannot work together, in one sentence; nothing when they can, or when they are two
// of the same part.
FLUX2_API std::optional<std::string> misfit(const FileInfo& a, const FileInfo& b);

struct FoundModel {
    ModelFiles files;
    std::string choice;  // one line: what was chosen, and instead of what
};

// Looks for the three parts in a folder and the folders in it: GGUF before safetensors, original
// before diffusers names; of several transformers the one of this variant ("klein", "base", "kv",
// "dev"), else the distilled one, and the parts that fit it. Parts in `given` are used as they are.
// A part that is not found is left empty. Two equally good candidates are an error, and so is a
// broken file if there is no other file for its part. Throws bad_file.
FLUX2_API FoundModel find_model(const std::filesystem::path& folder,
                                const std::string& variant = "", const ModelFiles& given = {});

// ---- Adapters ----

// A LoRA or one of its relatives, used for a request (docs/lora.md).
struct Adapter {
    std::filesystem::path file;  // safetensors or GGUF
    float strength = 1;          // any finite number; 0: without effect
    // Regular expressions (ECMAScript), searched in the names of modules such as
    // "double_blocks.0.img_attn.qkv": those to use and those to leave out. Empty: all, none.
    std::string include, exclude;
    // Factors for blocks: "double=0.5,single.0-9=0". Empty: 1 for all.
    std::string block_strengths;
};

// Description of an adapter file, from its header and single values.
struct AdapterInfo {
    std::filesystem::path path;
    std::string kinds;     // "LoRA", "LoKr, difference"
    std::string dialect;   // whose names: "kohya", "diffusers", "peft", ...
    std::string format;    // "GGUF" or "safetensors"
    std::string ranks;     // "16", "8, 16"; empty when its kinds have none
    std::string made_for;  // by its shapes: "FLUX.2 klein 4B"
    std::string touches;   // "transformer: 8 modules each of double blocks 0-4, ..."
    // From its metadata, such as {"trigger words", "blueprint"}, {"trained on", "flux2_klein_4b"}.
    std::vector<std::pair<std::string, std::string>> facts;
    std::vector<std::string> unused;  // keys that have no effect, each with the reason
    int64_t n_modules = 0;
    uint64_t size_bytes = 0;
};

// Whether a file can be opened and its keys are those of an adapter.
FLUX2_API bool is_adapter(const std::filesystem::path& path);
// Throws bad_file for a broken file and for one of which nothing is understood; unsupported, saying
// what it is, for an adapter of another model.
FLUX2_API AdapterInfo inspect_adapter(const std::filesystem::path& path);

// ---- Making pictures ----

// Where one part of a model is held and how; empty: as LoadOptions says for all.
struct PartOptions {
    std::string device, type;
};

struct LoadOptions {
    std::string device = "auto";    // a name from list_devices(); auto: the first GPU, else the CPU
    int threads = 0;                // 0: one per physical core
    std::string type;               // of the matrices in memory, such as "Q8_0"; empty: the file's
    std::string variant;            // overrides what the file says
    bool keep_loaded = false;       // keep all parts loaded if they fit; else one at a time
    uint64_t max_device_bytes = 0;  // for weights and computation; 0: all there is
    // On a CPU, repack matrices in RAM into the layout its kernels are fastest with, if RAM
    // suffices; else they are read from the mapped file.
    bool repack = true;
    // On a Hopper GPU (H100, H200), expand quantised matrices to BF16 when there is room: this
    // makes multiplies faster there. Not done when `type` is set.
    bool unpack = true;
    std::filesystem::path cache_folder;  // for encoded prompts and pictures; empty: no cache
    uint64_t cache_bytes = 500'000'000;  // upper limit of that folder
    // Devices and types of single parts; those of `vae` hold for the tiny autoencoder too.
    PartOptions transformer = {}, text_encoder = {}, vae = {};
    // Blocks of the transformer on several devices, which compute in turn: "auto" (in proportion to
    // their free memory) or proportions such as "2,1". Uses the devices listed in
    // `transformer.device`, with commas between them. If none are listed, the first N GPUs, then
    // the CPU, for N proportions. Empty: one device, unless `transformer.device` names several.
    std::string split = {};
};

// A picture to start from. Noise is added to it, and about this share of the steps is run:
// `strength` is above 0 (almost keeps the picture; 0 itself is refused) and at most 1 (ignores it).
struct InitImage {
    Image image;
    std::optional<float> strength = {};  // unset: 0.75; 1 when a part of the picture is repainted
};

enum class InpaintArea {
    whole,   // the model sees the whole picture, scaled down to its own resolution if it is larger
    masked,  // only the region around the mask, scaled to the model's own resolution
};

// Repaints a part of the picture to start from. The result has that picture's size, and where the
// mask is 0 after growing and blurring, its bytes; if it has a colour profile, so has the result.
// Width and height of the request are the size the model works at. The picture becomes the first
// reference; others follow.
struct Inpaint {
    Mask mask;            // of the picture's size
    bool invert = false;  // repaint what is 0 instead
    int grow = 0;         // pixels by which the mask is widened; below 0: narrowed
    int blur = 0;         // pixels over which its edge becomes soft, on both sides
    // Pixels inside the mask's edge over which the result passes into the picture; unset: by the
    // size of the region.
    std::optional<int> blend = {};
    InpaintArea area = InpaintArea::whole;
    std::optional<int> padding = {};  // pixels around a masked area; unset: by its size
};

// Enlarges the canvas of the picture to start from by so many pixels, and paints what is new. Goes
// together with Inpaint, whose mask is of the picture's size before it is enlarged.
struct Outpaint {
    int left = 0, top = 0, right = 0, bottom = 0;
};

// The share of the steps in which guidance by two passes is used: step i of n, counted from 0, has
// two passes when from <= i / n < until, and one otherwise. 0 <= from < until <= 1; 0 to 1: all.
struct GuidanceInterval {
    float from = 0, until = 1;
};

struct Request {
    std::string prompt;
    std::string negative_prompt;       // for guidance by two passes
    std::optional<int> width, height;  // multiples of 16; unset: a reference's, else the model's
    bool fit_size = false;             // round sizes to multiples of 16 instead of refusing them
    std::optional<int> steps;          // unset: the model's own
    std::optional<float> guidance;     // unset: the model's own
    // Classifier-free guidance. Above 1, each guided step also runs the negative prompt, which
    // doubles its time. For base models this is another name of `guidance`; dev embeds `guidance`
    // in both passes. Unset: off, except for base models.
    std::optional<float> cfg_scale;
    GuidanceInterval guidance_interval;
    std::optional<uint64_t> seed;  // unset: random, see Result
    std::vector<Image> references;
    // Index of the reference whose size the picture gets. Sides that are no multiples of 16 are
    // scaled to at most a megapixel and rounded down.
    std::optional<size_t> match_reference;
    // What each reference is for: a word of reference_roles(), or a sentence with {} in place of
    // the picture's number, which is added to the prompt. Empty: nothing is added, and for all of
    // them no list.
    std::vector<std::string> reference_roles;
    // Pixels that each reference has at most; larger ones are scaled down. 0: no limit but the
    // largest side. Unset: the limits of the reference implementation.
    std::optional<int64_t> reference_pixels;
    std::optional<InitImage> init;
    std::optional<Inpaint> inpaint;
    std::optional<Outpaint> outpaint;
    // Matches the colours of the result to those of the picture to start from, else of the first
    // reference, by what did not change.
    bool keep_colours = false;
    std::vector<Adapter> adapters;   // applied in this order
    bool strict_adapters = false;    // a key of an adapter file that is not used is an error
    std::vector<float> sigmas;       // custom noise levels, from 1 down to 0; empty: the schedule's
    std::optional<int> text_length;  // in tokens; unset: the model's own
    std::string generator = "cuda";  // of noise: "cuda", "cuda-f32", "cpu", "cpu-f32"
    bool preview = false;            // Step::preview is set after each step
    // For comparison with other programs: safetensors files with `noise` [1, channels, h, w], and
    // with `prompt_embeds` and `negative_prompt_embeds` [1, n, width], which take the place of both
    // prompts.
    std::filesystem::path noise_file, embeds_file;
    // Once true, this request ends with an Error cancelled, whichever stage it is in; another
    // thread or a signal handler may set it. Null: never.
    const std::atomic<bool>* cancel = nullptr;
};

// A use of a reference picture, and the sentence that tells the model so.
struct ReferenceRole {
    std::string word;      // "style"
    std::string sentence;  // "Apply the style from image {}."
};
FLUX2_API const std::vector<ReferenceRole>& reference_roles();

enum class Stage { load, encode_prompt, encode_references, denoise, decode };

// "loading", "encoding the prompt", ...
FLUX2_API const char* to_string(Stage stage);

struct Step {
    Stage stage = Stage::load;
    std::string what;                // the part that is loaded
    double share = 0;                // how much of the stage is done, 0..1
    int step = 0, n_steps = 0;       // denoising: steps that are done
    const Image* preview = nullptr;  // the unfinished picture; of reduced size without TAEF2
};

// Called often, from the thread that generates. Return false to cancel.
using Progress = std::function<bool(const Step&)>;

struct Timings {
    double load = 0, encode_prompt = 0, encode_references = 0, denoise = 0, decode = 0;  // seconds
};

struct Result {
    Image image;
    // What was used, after defaults.
    std::string prompt;  // with the sentences about references
    uint64_t seed = 0;
    int steps = 0;
    float guidance = 0;
    float cfg_scale = 1;  // of two passes; 1: one pass
    std::vector<float> sigmas;
    bool prompt_cached = false;  // features were cached: the text encoder was not used
    int references_cached = 0;   // reference and init pictures that were encoded already
    int references_encoded = 0;  // those that the autoencoder encoded for this picture
    Timings timings;
    // Peak of the memory allocated for weights and computation.
    uint64_t device_peak = 0, host_peak = 0;
};

// Takes a finished picture, on the thread that generates.
using OnPicture = std::function<void(Result)>;

// ---- Memory ----

struct StageMemory {
    std::string stage;            // "text encoder", "transformer", "decode", ...
    std::string placement;        // "CUDA0", "CPU", "streamed to CUDA0"
    uint64_t device_weights = 0;  // on a GPU
    uint64_t device_compute = 0;
    uint64_t host_weights = 0;  // in RAM, allocated
    uint64_t host_compute = 0;  // buffers, work space, pictures and features
    uint64_t mapped = 0;        // pages of the model files, which the system may drop
    double seconds = 0;         // forecast, without loading; 0: could not be measured
};

// What one device must have at a time.
struct DevicePeak {
    std::string device;
    uint64_t bytes = 0;
};

// Blocks of the transformer on one device.
struct BlockPlace {
    std::string device;
    std::string blocks;  // "double 0-4, single 0-9"
    uint64_t weights = 0, compute = 0;
};

// Bytes that are copied between two devices, or a device and the program ("host"), in each step
// from the second on.
struct StepTraffic {
    std::string from, to;
    uint64_t bytes = 0;
    uint64_t activations = 0;  // of these: latents, tokens between blocks, the velocity
};

struct MemoryPlan {
    std::vector<StageMemory> stages;
    int width = 0, height = 0;  // of the picture, as the request or the model says
    int steps = 0;
    int n_pictures = 1;        // in one pass
    uint64_t device_peak = 0;  // of the device that takes the most
    uint64_t host_peak = 0;
    uint64_t mapped_peak = 0;
    double seconds = 0;                // of all stages; 0 when one of them could not be measured
    std::vector<DevicePeak> devices;   // every device that is used, without the CPU
    std::vector<BlockPlace> blocks;    // of the transformer, in their order
    std::vector<StepTraffic> traffic;  // per pass of the transformer
};

// Move-only.
class Pipeline {
  public:
    // Opens the files' headers and checks that they fit together; weights are read when needed.
    // Throws bad_file, naming the file and what would fit.
    FLUX2_API static Pipeline load(const ModelFiles& files, const LoadOptions& options = {});
    FLUX2_API ~Pipeline();
    FLUX2_API Pipeline(Pipeline&& other) noexcept;
    FLUX2_API Pipeline& operator=(Pipeline&& other) noexcept;

    // What the transformer is, and its defaults.
    FLUX2_API const FileInfo& model() const;
    FLUX2_API const std::string& device() const;

    // Throws bad_argument for a request that cannot work, before anything large is loaded.
    FLUX2_API Result generate(const Request& request, const Progress& progress = {});
    // Pictures with n seeds, counted up from the request's, in passes of as many as the memory has
    // room for; a line tells when these are fewer. Each is handed over when it is ready, in the
    // order of the seeds; what on_picture throws ends the call. A preview shows those of a pass
    // side by side. 1 <= n <= kMostPictures.
    static constexpr int kMostPictures = 64;
    FLUX2_API void generate_several(const Request& request, int n, const OnPicture& on_picture,
                                    const Progress& progress = {});
    // Encodes the prompts of later requests that are otherwise equal to this one, so that the text
    // encoder is loaded once for many pictures. Encodes the first of them, as many as a quarter of
    // the free RAM has room for, and returns how many: all, as a rule. Each of these is held in
    // memory until a request has used it or this is called again; the others must be given again.
    // Checks and limits are those of generate; the request's cancel flag is obeyed.
    FLUX2_API size_t encode_prompts(const Request& request, const std::vector<std::string>& prompts,
                                    const Progress& progress = {});
    // Peak memory of a request, from its real graphs, and how long it takes: n pictures in one
    // pass, or as many as there is room for. To forecast time, it loads and times a few blocks of
    // each network; this takes one to two seconds, once per machine and model if
    // LoadOptions::cache_folder is set. On a GPU, parts that are loaded are freed first. The
    // request's cancel flag is obeyed.
    FLUX2_API MemoryPlan plan(const Request& request, int n = 1);

  private:
    struct Impl;
    explicit Pipeline(std::unique_ptr<Impl> impl);
    std::unique_ptr<Impl> impl_;
};

}  // namespace flux2
