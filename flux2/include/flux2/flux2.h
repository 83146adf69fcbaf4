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
//             status = flux2_image_save("house.png", &result.image);
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
// Structs start with their own size, set by their _default() function, and grow at the end: a
// program built with an older header keeps working with a newer library.
// Threads: a pipeline serves one at a time, except for flux2_cancel; different pipelines are
// independent.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// ---- Errors ----

typedef enum flux2_status {
    FLUX2_OK = 0,
    FLUX2_BAD_ARGUMENT = 1,   // a null pointer, an option or a value that cannot work
    FLUX2_BAD_FILE = 2,       // missing, unreadable, broken, or not fitting the others
    FLUX2_UNSUPPORTED = 3,    // a valid file or feature this version does not handle
    FLUX2_OUT_OF_MEMORY = 4,  // host or device memory
    FLUX2_OUT_OF_DISK = 5,    // no room for an output
    FLUX2_BACKEND = 6,        // a device failed
    FLUX2_CANCELLED = 7,      // the callback or flux2_cancel asked to stop
    FLUX2_INTERNAL = 8        // a bug of ours
} flux2_status;

// What went wrong in the last call on this thread that failed, and what to do; empty when none did.
// Valid until the thread's next failure.
const char* flux2_last_error(void);

// What a program returns that ends with this status: 0, 2 for arguments, 3 for files, 4 for memory
// or disk, 5 for a device, 130 when cancelled, else 1.
int flux2_exit_code(flux2_status status);

// ---- This library and this machine ----

// "0.1.0"
const char* flux2_version(void);

// Names that flux2_load_options.device takes, ended by a null pointer; null on failure. Valid until
// the thread's next call.
const char* const* flux2_devices(void);

typedef enum flux2_log_level {
    FLUX2_LOG_DEBUG = 0,
    FLUX2_LOG_INFO = 1,
    FLUX2_LOG_WARNING = 2,
    FLUX2_LOG_ERROR = 3
} flux2_log_level;

typedef void (*flux2_log)(flux2_log_level level, const char* line, void* user_data);

// Sends what the library has to say to this function; null, as in the beginning, drops it. For the
// whole process. Any thread may call this, but not the function itself. The function is called from
// the threads that use the library and from those they start, one call at a time.
flux2_status flux2_set_log(flux2_log log, void* user_data);

// ---- Pictures ----

// 8-bit RGB without padding: rows from top to bottom, three bytes a pixel. An image may point to
// the caller's own pixels. This struct does not grow.
typedef struct flux2_image {
    int width;
    int height;
    uint8_t* rgb;
} flux2_image;

// Reads a PNG or a JPEG. On failure the image is empty. Free it with flux2_image_free.
flux2_status flux2_image_load(const char* path, flux2_image* image);

// Writes a PNG, a JPEG or a BMP, as the name ends in .png, .jpg, .jpeg or .bmp. The file appears
// whole or not at all; a pipe or a device takes the bytes and stays what it is.
flux2_status flux2_image_save(const char* path, const flux2_image* image);

// Frees the pixels of an image that the library made and empties it, so that a second call, like a
// null pointer, does nothing.
void flux2_image_free(flux2_image* image);

// ---- Model files ----

// The three parts, each a GGUF or safetensors file, a shard of several, or a folder with one
// checkpoint. The text encoder may be null when features come from a file.
typedef struct flux2_model_files {
    size_t size;
    const char* transformer;
    const char* text_encoder;
    const char* vae;
    const char* choice;  // set by flux2_find_model: one line, what was taken and over what
    void* memory;        // the library's own: where found texts lie
    // TAEF2, the tiny autoencoder: draws previews and, fast and roughly, pictures; then the
    // autoencoder may be null. Null: none.
    const char* taesd;
    size_t taesd_preview_only;  // not 0: leaves pictures to the autoencoder
} flux2_model_files;

void flux2_model_files_init(flux2_model_files* files, size_t size);
static inline flux2_model_files flux2_model_files_default(void) {
    flux2_model_files files;
    flux2_model_files_init(&files, sizeof(files));
    return files;
}

// Looks for the parts in a folder and the folders in it. Variant: "klein", "base", "kv" or "dev";
// null: the distilled one of several. Parts that are set in `files` are taken as they are; one that
// is not found stays null. On failure `files` keeps its content.
flux2_status flux2_find_model(const char* folder, const char* variant, flux2_model_files* files);

// Frees what flux2_find_model allocated, if it did, and sets all texts to null, so that a second
// call, like a null pointer, does nothing.
void flux2_model_files_free(flux2_model_files* files);

// ---- Loading ----

typedef enum flux2_stage {
    FLUX2_STAGE_LOAD = 0,
    FLUX2_STAGE_ENCODE_PROMPT = 1,
    FLUX2_STAGE_ENCODE_REFERENCES = 2,
    FLUX2_STAGE_DENOISE = 3,
    FLUX2_STAGE_DECODE = 4
} flux2_stage;

// "loading", "encoding the prompt", ...
const char* flux2_stage_name(flux2_stage stage);

// Made by the library and valid during the callback; grows at the end.
typedef struct flux2_step {
    flux2_stage stage;
    const char* what;            // the part that is loaded
    double share;                // of the stage that is done, 0..1
    int step, n_steps;           // denoising: steps that are done, of all
    const flux2_image* preview;  // the picture so far, when asked for and known; else null
} flux2_step;

// Called often, on the thread that generates. Return false to cancel. It must not throw, nor call
// functions with the same pipeline, except for flux2_cancel.
typedef bool (*flux2_progress)(const flux2_step* step, void* user_data);

typedef struct flux2_load_options {
    size_t size;
    const char* device;         // a name from flux2_devices(); null: the first GPU, else the CPU
    const char* type;           // of the matrices in memory, such as "Q8_0"; null: the file's
    const char* variant;        // overrides what the file says; null: does not
    int threads;                // at most 512; 0: one per physical core
    bool keep_loaded;           // hold all parts between pictures if they fit; else in turn
    uint64_t max_device_bytes;  // for weights and computation; 0: all there is
    const char* cache_folder;   // for encoded prompts; null: no cache
    uint64_t cache_bytes;       // upper limit of that folder
    flux2_progress progress;    // of all pictures of this pipeline; null: none
    void* progress_data;        // handed to it
    bool repack;  // on a CPU, lay matrices out anew where that is faster and RAM suffices
    bool unpack;  // on an NVIDIA GPU, unpack quantised matrices to BF16 when there is room
} flux2_load_options;

void flux2_load_options_init(flux2_load_options* options, size_t size);
static inline flux2_load_options flux2_load_options_default(void) {
    flux2_load_options options;
    flux2_load_options_init(&options, sizeof(options));
    return options;
}

typedef struct flux2_pipeline flux2_pipeline;

// Opens the files' headers and checks that they fit together; weights are read when needed. Options
// may be null: the defaults. On failure *pipeline is null. Free it with flux2_free.
flux2_status flux2_load(const char* folder, const flux2_load_options* options,
                        flux2_pipeline** pipeline);
flux2_status flux2_load_files(const flux2_model_files* files, const flux2_load_options* options,
                              flux2_pipeline** pipeline);

// Each pipeline is freed once, when no call uses it. A null pointer does nothing.
void flux2_free(flux2_pipeline* pipeline);

// "FLUX.2 klein 4B" and "CUDA0", valid as long as the pipeline; null for a null pointer.
const char* flux2_model_name(const flux2_pipeline* pipeline);
const char* flux2_device_name(const flux2_pipeline* pipeline);

// ---- Making pictures ----

typedef struct flux2_request {
    size_t size;
    const char* prompt;           // needed, unless embeds_file is set; may be empty
    const char* negative_prompt;  // for models that are guided by two passes
    int width, height;            // multiples of 16; 0: the matched reference's, else 1024
    int steps;                    // 0: the model's own
    float guidance;               // below 0: the model's own
    bool has_seed;                // else the seed is random, told in the result
    uint64_t seed;
    bool fit_size;                  // round sizes to multiples of 16 instead of refusing them
    bool preview;                   // progress of steps carries the picture so far
    int match_reference;            // take the size of this one, counted from 0; below 0: of none
    const flux2_image* references;  // an array
    size_t n_references;
    const flux2_image* init;  // a picture to start from; null: noise
    float strength;           // of the noise over init: near 0 keeps it, 1 ignores it
    int text_length;          // in tokens; 0: the model's own
    const float* sigmas;      // own noise levels, from 1 down to 0; null: the schedule's
    size_t n_sigmas;
    const char* generator;  // of noise: "cuda", "cuda-f32", "cpu", "cpu-f32"; null: "cuda"
    // For comparison with other programs: safetensors files with `noise` [1, channels, h, w], and
    // with `prompt_embeds` and `negative_prompt_embeds` [1, n, width].
    const char* noise_file;
    const char* embeds_file;
} flux2_request;

void flux2_request_init(flux2_request* request, size_t size);
static inline flux2_request flux2_request_default(void) {
    flux2_request request;
    flux2_request_init(&request, sizeof(request));
    return request;
}

typedef struct flux2_result {
    size_t size;
    flux2_image image;
    // What was used, after defaults.
    uint64_t seed;
    int steps;
    float guidance;
    double load_seconds;
    double encode_prompt_seconds;
    double encode_references_seconds;
    double denoise_seconds;
    double decode_seconds;
} flux2_result;

void flux2_result_init(flux2_result* result, size_t size);
static inline flux2_result flux2_result_default(void) {
    flux2_result result;
    flux2_result_init(&result, sizeof(result));
    return result;
}

// Takes a result as flux2_result_default or flux2_result_free left it; on failure it stays so. A
// request that cannot work is refused before anything large is loaded. After a failure the pipeline
// can be used again.
flux2_status flux2_generate(flux2_pipeline* pipeline, const flux2_request* request,
                            flux2_result* result);

// Frees the picture and empties the result, so that it can be used again and that a second call,
// like a null pointer, does nothing.
void flux2_result_free(flux2_result* result);

// Ends the picture in the making, from any thread or a signal handler: its flux2_generate returns
// FLUX2_CANCELLED. Pictures that are begun later are not affected.
flux2_status flux2_cancel(flux2_pipeline* pipeline);

#ifdef __cplusplus
}
#endif
