// FLUX.2 image models from C: load one, make pictures with it.
//
//     #include <flux2/flux2.h>
//     #include <stdio.h>
//
//     int main(void) {
//         flux2_pipeline* pipeline = NULL;
//         flux2_result result = flux2_result_default();
//         flux2_request request = flux2_request_default();
//         request.prompt = "a red house by the sea";
//         flux2_status status = flux2_load("klein-4b", NULL, &pipeline);
//         if (status == FLUX2_OK) {
//             status = flux2_generate(pipeline, &request, &result);
//         }
//         if (status == FLUX2_OK) {
//             status = flux2_image_save("house.png", &result.image, NULL, 0);
//         }
//         if (status != FLUX2_OK) {
//             fprintf(stderr, "%s\n", flux2_last_error());
//         }
//         flux2_result_free(&result);
//         flux2_free(pipeline);
//         return flux2_exit_code(status);
//     }
//
// Texts and paths are UTF-8. What is passed in is read during the call and stays the caller's.
// Where the library fills a struct, its _free function frees what the struct points to and empties
// it, so that a second call, like a null pointer, does nothing.
//
// Structs that start with their own size may grow at the end; no struct has padding. Those that the
// caller makes get their size from their _default() function: a program built with an older header
// keeps working with a newer library. Those that the library makes tell how much of them is there.
// Fields named `reserved` stay 0. Flags are 0 or 1.
//
// Threads: any function may be called from any thread. A pipeline serves one call at a time, but
// flux2_model_info and flux2_device_name may be called meanwhile; a cancel token may be raised at
// any time; different pipelines are independent.
#pragma once

#include <flux2/error.h>
#include <flux2/export.h>
#include <flux2/image.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// ---- This library and this machine ----

// "0.2.0"
FLUX2_API const char* flux2_version(void);

// Made by the library.
typedef struct flux2_device {
    size_t size;
    const char* name;         // "CPU", "CUDA0", ...: what flux2_load_options.device takes
    const char* description;  // the product's name
    uint64_t free_bytes;
    uint64_t total_bytes;
    uint32_t is_software;  // a GPU that the CPU imitates: used only when it is named
    uint32_t reserved;
} flux2_device;

typedef struct flux2_device_list {
    size_t count;
    const flux2_device* const* items;
    void* memory;  // the library's own
} flux2_device_list;

// On failure the list is empty. Free it with flux2_device_list_free.
FLUX2_API flux2_status flux2_list_devices(flux2_device_list* list);
// Adds the devices that servers lend, "host:port,host:port", each a flux2-rpc-server of this
// version: RPC0, ... FLUX2_BACKEND when one cannot be reached or does not match.
FLUX2_API flux2_status flux2_add_servers(const char* servers);
FLUX2_API void flux2_device_list_free(flux2_device_list* list);

typedef enum flux2_log_level FLUX2_ENUM_TYPE {
    FLUX2_LOG_DEBUG = 0,
    FLUX2_LOG_INFO = 1,
    FLUX2_LOG_WARNING = 2,
    FLUX2_LOG_ERROR = 3
} flux2_log_level;

typedef void (*flux2_log)(flux2_log_level level, const char* line, void* user_data);

// Sends messages of the library to this function; null, the initial state, drops them. Applies to
// the whole process. Any thread may call this, but not the function itself. The function is called
// from the threads that use the library and from those they start, one call at a time.
FLUX2_API flux2_status flux2_set_log(flux2_log log, void* user_data);

// ---- Model files ----

// The three parts, each a GGUF or safetensors file, a shard of several, or a folder with one
// checkpoint. A part that is null is taken from the transformer's file when that holds it. The text
// encoder may be missing when features come from a file, the autoencoder when there is TAEF2.
typedef struct flux2_model_files {
    size_t size;
    const char* transformer;
    const char* text_encoder;
    const char* vae;
    // TAEF2, the tiny autoencoder: decodes previews and, fast but less exactly, the picture. It
    // also encodes pictures when there is no autoencoder. Null: none.
    const char* taesd;
    const char* choice;  // set by flux2_find_model: one line, what was chosen and instead of what
    void* memory;        // the library's own: holds the found texts
    uint32_t taesd_preview_only;  // the autoencoder decodes the picture
    uint32_t reserved;
} flux2_model_files;

FLUX2_API void flux2_model_files_init(flux2_model_files* files, size_t size);
static inline flux2_model_files flux2_model_files_default(void) {
    flux2_model_files files;
    flux2_model_files_init(&files, sizeof(files));
    return files;
}

// Looks for the parts in a folder and the folders in it. Variant: "klein", "base", "kv" or "dev";
// null: the distilled one of several. Parts that are set in `files` are used as they are; a part
// that is not found stays null. On failure `files` keeps its content. Free it with
// flux2_model_files_free.
FLUX2_API flux2_status flux2_find_model(const char* folder, const char* variant,
                                        flux2_model_files* files);
// Sets all texts to null, those of the caller too.
FLUX2_API void flux2_model_files_free(flux2_model_files* files);

// Description of a part, from its file's header alone. Made by the library.
typedef struct flux2_file_info {
    size_t size;
    const char* path;
    const char* part;      // "transformer", "text encoder", "autoencoder" or "tiny autoencoder"
    const char* name;      // "FLUX.2 klein 4B"
    const char* format;    // "GGUF" or "safetensors"
    const char* naming;    // whose tensor names: "original", "diffusers", ...
    const char* types;     // "Q8_0 x 80, BF16 x 12"
    const char* scheme;    // how weights are stored, in words
    const char* partners;  // which files it goes with
    const char* variant;   // transformer: "klein", "base", "kv" or "dev"
    const char* variant_reason;  // how that is known
    const char* const* notes;    // warnings for the user, such as a missing tokenizer
    size_t n_notes;
    int64_t n_parameters;
    uint64_t size_bytes;
    int64_t text_width;       // of the features a transformer takes or an encoder gives
    int64_t latent_channels;  // of a token, for transformer and autoencoders
    int32_t default_steps;    // these for the transformer
    float default_guidance;
    int32_t default_width;
    int32_t default_height;
    uint32_t distilled;  // made for few steps without guidance
    uint32_t reserved;
} flux2_file_info;

typedef struct flux2_file_list {
    size_t count;
    const flux2_file_info* const* items;
    void* memory;  // the library's own
} flux2_file_list;

// Every part of a file, since some hold several. FLUX2_BAD_FILE for a file that is broken or no
// part of FLUX.2; FLUX2_UNSUPPORTED, saying what it is, when that is known. On failure the list is
// empty. Free it with flux2_file_list_free.
FLUX2_API flux2_status flux2_inspect(const char* path, flux2_file_list* parts);
FLUX2_API void flux2_file_list_free(flux2_file_list* parts);

// Why two parts cannot work together, in one sentence; null when they can, when they are two of the
// same part, and on failure. Free it with flux2_text_free.
FLUX2_API flux2_status flux2_misfit(const flux2_file_info* a, const flux2_file_info* b,
                                    char** reason);

// ---- Adapters ----

// A LoRA or one of its relatives, used for a request (docs/lora.md).
typedef struct flux2_adapter {
    size_t size;
    const char* file;  // safetensors or GGUF
    // Regular expressions (ECMAScript), searched in the names of modules such as
    // "double_blocks.0.img_attn.qkv": those to use and those to leave out. Null: all, none.
    const char* include;
    const char* exclude;
    const char* block_strengths;  // factors for blocks: "double=0.5,single.0-9=0"; null: 1 for all
    float strength;               // any finite number, 1 by default; 0: without effect
    uint32_t reserved;
} flux2_adapter;

FLUX2_API void flux2_adapter_init(flux2_adapter* adapter, size_t size);
static inline flux2_adapter flux2_adapter_default(void) {
    flux2_adapter adapter;
    flux2_adapter_init(&adapter, sizeof(adapter));
    return adapter;
}

// A line of an adapter's metadata, such as "trigger words" and "blueprint".
typedef struct flux2_adapter_fact {
    const char* name;
    const char* text;
} flux2_adapter_fact;

// Description of an adapter file, from its header and single values. Made by the library.
typedef struct flux2_adapter_info {
    size_t size;
    const char* path;
    const char* kinds;     // "LoRA", "LoKr, difference"
    const char* dialect;   // whose names: "kohya", "diffusers", "peft", ...
    const char* format;    // "GGUF" or "safetensors"
    const char* ranks;     // "16", "8, 16"; empty when its kinds have none
    const char* made_for;  // by its shapes: "FLUX.2 klein 4B"
    const char* touches;   // "transformer: 8 modules each of double blocks 0-4, ..."
    const flux2_adapter_fact* facts;
    size_t n_facts;
    const char* const* unused;  // keys that have no effect, each with the reason
    size_t n_unused;
    int64_t n_modules;
    uint64_t size_bytes;
} flux2_adapter_info;

// Whether a file can be opened and its keys are those of an adapter.
FLUX2_API bool flux2_is_adapter(const char* path);

// FLUX2_BAD_FILE for a broken file and for one of which nothing is understood; FLUX2_UNSUPPORTED,
// saying what it is, for an adapter of another model. On failure *info is null. Free it with
// flux2_adapter_info_free.
FLUX2_API flux2_status flux2_inspect_adapter(const char* path, flux2_adapter_info** info);
FLUX2_API void flux2_adapter_info_free(flux2_adapter_info* info);

// ---- Loading ----

typedef struct flux2_load_options {
    size_t size;
    const char* device;         // a name from flux2_list_devices; null: the first GPU, else the CPU
    const char* type;           // of the matrices in memory, such as "Q8_0"; null: the file's
    const char* variant;        // overrides what the file says; null: does not
    const char* cache_folder;   // for encoded prompts and pictures; null: no cache
    uint64_t cache_bytes;       // upper limit of that folder
    uint64_t max_device_bytes;  // for weights and computation; 0: all there is
    int32_t threads;            // at most 512; 0: one per physical core
    uint32_t keep_loaded;       // keep all parts loaded if they fit; else one at a time
    uint32_t repack;            // on a CPU, repack matrices where that is faster and RAM suffices
    uint32_t unpack;  // on an NVIDIA GPU, unpack quantised matrices to BF16 when there is room
    // Devices and types of single parts, in place of `device` and `type`; null: those. What is said
    // for vae holds for the tiny autoencoder too.
    const char* transformer_device;
    const char* transformer_type;
    const char* text_encoder_device;
    const char* text_encoder_type;
    const char* vae_device;
    const char* vae_type;
    // Blocks of the transformer on several devices: "auto", or proportions such as "2,1", on those
    // that transformer_device names with commas between them, else on all; null: not.
    const char* split;
} flux2_load_options;

FLUX2_API void flux2_load_options_init(flux2_load_options* options, size_t size);
static inline flux2_load_options flux2_load_options_default(void) {
    flux2_load_options options;
    flux2_load_options_init(&options, sizeof(options));
    return options;
}

typedef struct flux2_pipeline flux2_pipeline;

// Opens the files' headers and checks that they fit together; weights are read when needed. Options
// may be null: the defaults. On failure *pipeline is null. Free it with flux2_free.
FLUX2_API flux2_status flux2_load(const char* folder, const flux2_load_options* options,
                                  flux2_pipeline** pipeline);
FLUX2_API flux2_status flux2_load_files(const flux2_model_files* files,
                                        const flux2_load_options* options,
                                        flux2_pipeline** pipeline);

// Each pipeline is freed once, when no call uses it. A null pointer does nothing.
FLUX2_API void flux2_free(flux2_pipeline* pipeline);

// What the transformer is, with its defaults, and "CPU" or "CUDA0". Valid as long as the pipeline;
// null for a null pointer.
FLUX2_API const flux2_file_info* flux2_model_info(const flux2_pipeline* pipeline);
FLUX2_API const char* flux2_device_name(const flux2_pipeline* pipeline);

// ---- Requests ----

// Cancels the requests that refer to it, waiting or running, and no others.
typedef struct flux2_cancel_token flux2_cancel_token;

// On failure *token is null. Free it with flux2_cancel_token_free.
FLUX2_API flux2_status flux2_cancel_token_create(flux2_cancel_token** token);
// From any thread or a signal handler. The calls with such a request return FLUX2_CANCELLED, those
// that begin later too: a token stays raised. A null pointer does nothing.
FLUX2_API void flux2_cancel_token_raise(flux2_cancel_token* token);
FLUX2_API bool flux2_cancel_token_is_raised(const flux2_cancel_token* token);
// When no call uses a request that carries it. A null pointer does nothing.
FLUX2_API void flux2_cancel_token_free(flux2_cancel_token* token);

typedef enum flux2_stage FLUX2_ENUM_TYPE {
    FLUX2_STAGE_LOAD = 0,
    FLUX2_STAGE_ENCODE_PROMPT = 1,
    FLUX2_STAGE_ENCODE_REFERENCES = 2,
    FLUX2_STAGE_DENOISE = 3,
    FLUX2_STAGE_DECODE = 4
} flux2_stage;

// "loading", "encoding the prompt", ...
FLUX2_API const char* flux2_stage_name(flux2_stage stage);

// Made by the library and valid during the callback.
typedef struct flux2_step {
    size_t size;
    const char* what;            // the part that is loaded
    const flux2_image* preview;  // the picture so far, when asked for and known; else null
    double share;                // of the stage that is done, 0..1
    flux2_stage stage;
    int32_t step;  // denoising: steps that are done
    int32_t n_steps;
    uint32_t reserved;
} flux2_step;

// Called often, on the thread that works on the request. Return false to cancel. It must not throw,
// nor call functions with the same pipeline.
typedef bool (*flux2_progress)(const flux2_step* step, void* user_data);

// What the model sees of a picture of which a part is repainted.
typedef enum flux2_inpaint_area FLUX2_ENUM_TYPE {
    FLUX2_INPAINT_WHOLE = 0,  // all of it, scaled down to its own resolution if it is larger
    FLUX2_INPAINT_MASKED = 1  // the region around the mask, scaled to its own resolution
} flux2_inpaint_area;

// Words for the uses of references, and the sentences that tell the model so; null from the number
// of roles on.
FLUX2_API const char* flux2_reference_role(size_t index);
FLUX2_API const char* flux2_reference_sentence(size_t index);

typedef struct flux2_request {
    size_t size;
    const char* prompt;             // flux2_generate needs it, unless embeds_file is set; may be ""
    const char* negative_prompt;    // for models that are guided by two passes
    const flux2_image* references;  // an array
    size_t n_references;
    const flux2_image* init;  // a picture to start from; null: noise
    const float* sigmas;      // own noise levels, from 1 down to 0; null: the schedule's
    size_t n_sigmas;
    const char* generator;  // of noise: "cuda", "cuda-f32", "cpu", "cpu-f32"; null: "cuda"
    // For comparison with other programs: safetensors files with `noise` [1, channels, h, w], and
    // with `prompt_embeds` and `negative_prompt_embeds` [1, n, width].
    const char* noise_file;
    const char* embeds_file;
    flux2_progress progress;           // null: none
    void* progress_data;               // handed to it
    const flux2_cancel_token* cancel;  // null: none
    uint64_t seed;                     // with has_seed; else it is random, told in the result
    uint32_t has_seed;
    int32_t width, height;    // multiples of 16; 0: of a reference or of init, else the model's own
    int32_t match_reference;  // take the size of this one, counted from 0; below 0: of the first
    int32_t steps;            // 0: the model's own
    float guidance;           // below 0: the model's own
    // For init: above 0 (almost keeps it; 0 is refused) to 1 (ignores it); below 0: 0.75, and 1
    // when a part of it is repainted.
    float strength;
    int32_t text_length;  // in tokens; 0: the model's own
    uint32_t fit_size;    // round sizes to multiples of 16 instead of refusing them
    uint32_t preview;     // progress of steps carries the picture so far
    const flux2_adapter* const* adapters;  // applied in this order
    size_t n_adapters;
    uint32_t strict_adapters;  // a key of an adapter file that is not used is an error
    uint32_t reserved;
    // Repaints this part of init, which becomes the first reference; null: all of it changes. The
    // result has init's size, and its bytes where the mask is 0 after growing and blurring. Width
    // and height are the size the model works at.
    const flux2_mask* mask;
    // What each reference is for: a word of flux2_reference_role, or a sentence with {} in place of
    // its number, added to the prompt; null or "": nothing. An array of n_references, or null.
    const char* const* reference_roles;
    int64_t reference_pixels;         // of each at most; 0: no limit; below 0: the reference's own
    flux2_inpaint_area inpaint_area;  // which part of the picture the model sees
    uint32_t mask_invert;             // repaint what is 0 instead
    int32_t mask_grow;                // pixels; below 0: narrows it
    int32_t mask_blur;                // pixels over which its edge becomes soft
    int32_t mask_blend;       // pixels inside its edge that pass into init; below 0: by its size
    int32_t inpaint_padding;  // pixels around a masked area; below 0: by its size
    // Pixels by which init's canvas grows; what is new is painted.
    int32_t outpaint_left, outpaint_top, outpaint_right, outpaint_bottom;
    // Guidance by two passes on any model, above 1; below 0: as `guidance` says.
    float cfg_scale;
    // Step i of n, from 0 on, has two passes when guidance_from <= i / n < guidance_until; 0 and 1:
    // all steps.
    float guidance_from, guidance_until;
    uint32_t keep_colours;  // match colours to init or the first reference by what did not change
} flux2_request;

FLUX2_API void flux2_request_init(flux2_request* request, size_t size);
static inline flux2_request flux2_request_default(void) {
    flux2_request request;
    flux2_request_init(&request, sizeof(request));
    return request;
}

// ---- Making pictures ----

typedef struct flux2_result {
    size_t size;
    flux2_image image;
    // What was used, after defaults.
    float* sigmas;
    size_t n_sigmas;
    uint64_t seed;
    // The most that weights and computation took at a time, as allocated.
    uint64_t device_peak, host_peak;
    double load_seconds;
    double encode_prompt_seconds;
    double encode_references_seconds;
    double denoise_seconds;
    double decode_seconds;
    int32_t steps;
    float guidance;
    uint32_t prompt_cached;       // features were there already: the text encoder was not used
    float cfg_scale;              // of two passes; 1: one pass
    char* prompt;                 // with the sentences about references
    uint32_t references_cached;   // reference and init pictures that were encoded already
    uint32_t references_encoded;  // those that the autoencoder encoded for this picture
} flux2_result;

FLUX2_API void flux2_result_init(flux2_result* result, size_t size);
static inline flux2_result flux2_result_default(void) {
    flux2_result result;
    flux2_result_init(&result, sizeof(result));
    return result;
}

// Takes a result as flux2_result_default or flux2_result_free left it; on failure it stays so. A
// request that cannot work is refused before anything large is loaded. After a failure the pipeline
// can be used again.
FLUX2_API flux2_status flux2_generate(flux2_pipeline* pipeline, const flux2_request* request,
                                      flux2_result* result);
FLUX2_API void flux2_result_free(flux2_result* result);

// Pictures with n seeds, counted up from the request's, in passes of as many as the memory has room
// for; a preview shows those of a pass side by side. `results` are n as flux2_generate takes one,
// all of the same size. On failure those made until then are there, and the others stay as they
// were, with image.rgb null. 1 <= n <= 64.
FLUX2_API flux2_status flux2_generate_several(flux2_pipeline* pipeline,
                                              const flux2_request* request, size_t n,
                                              flux2_result* results);

// Encodes the prompts of requests that are otherwise like this one ahead, so that the text encoder
// is loaded once for many pictures. Each is held in memory until a request has used it or this is
// called again. FLUX2_OUT_OF_MEMORY when a quarter of the free RAM has no room for all; the message
// says how many of the first ones are held. Refuses what flux2_generate would refuse, and obeys the
// request's progress and cancel token.
FLUX2_API flux2_status flux2_encode_prompts(flux2_pipeline* pipeline, const flux2_request* request,
                                            const char* const* prompts, size_t n_prompts);

// ---- Memory ----

// Made by the library.
typedef struct flux2_stage_memory {
    size_t size;
    const char* stage;        // "text encoder", "transformer", "decode", ...
    const char* placement;    // "CUDA0", "CPU", "streamed to CUDA0"
    uint64_t device_weights;  // on a GPU
    uint64_t device_compute;
    uint64_t host_weights;  // in RAM of our own
    uint64_t host_compute;  // buffers, work space, pictures and features
    uint64_t mapped;        // pages of the model files, which the system may drop
    double seconds;         // forecast, without loading; 0: could not be measured
} flux2_stage_memory;

typedef struct flux2_memory_plan {
    size_t size;
    size_t n_stages;
    const flux2_stage_memory* const* stages;
    void* memory;  // the library's own
    uint64_t device_peak;
    uint64_t host_peak;
    uint64_t mapped_peak;
    uint64_t n_pictures;  // in one pass
    double seconds;       // of all stages; 0 when one of them could not be measured
} flux2_memory_plan;

FLUX2_API void flux2_memory_plan_init(flux2_memory_plan* plan, size_t size);
static inline flux2_memory_plan flux2_memory_plan_default(void) {
    flux2_memory_plan plan;
    flux2_memory_plan_init(&plan, sizeof(plan));
    return plan;
}

// Peak memory of a request, from its real graphs, and how long it takes. To forecast time, it loads
// and times a few blocks of each network; this takes one to two seconds, once per machine and model
// if a cache folder is set. On a GPU, parts that are loaded are freed first. Obeys the request's
// cancel token. Takes a plan as flux2_memory_plan_default or
// flux2_memory_plan_free left it; on failure it stays so.
FLUX2_API flux2_status flux2_plan(flux2_pipeline* pipeline, const flux2_request* request,
                                  flux2_memory_plan* plan);
// The same for n pictures in one pass, or as many as there is room for.
FLUX2_API flux2_status flux2_plan_several(flux2_pipeline* pipeline, const flux2_request* request,
                                          size_t n, flux2_memory_plan* plan);
FLUX2_API void flux2_memory_plan_free(flux2_memory_plan* plan);

#ifdef __cplusplus
}
#endif
