// The C interface, compiled as C99: pictures against recordings of the reference, and every way to
// use it wrongly. Usage: test_c_header FIXTURES/klein PICTURE_TO_WRITE.png
#include <flux2/flux2.h>

#include <stdio.h>
#include <string.h>

static int n_failed = 0;

static void expect(bool condition, const char* text, int line) {
    if (!condition) {
        fprintf(stderr, "line %d: %s does not hold (last error: %s)\n", line, text,
                flux2_last_error());
        ++n_failed;
    }
}
#define EXPECT(condition) expect((condition), #condition, __LINE__)

// ---- Help ----

static const char* model_folder;

// One of two texts, so that two paths can be used together.
static const char* in_folder(int slot, const char* name) {
    static char paths[2][4096];
    snprintf(paths[slot], sizeof(paths[slot]), "%s/%s", model_folder, name);
    return paths[slot];
}

static bool last_error_says(const char* part) {
    return strstr(flux2_last_error(), part) != NULL;
}

// A peak signal-to-noise ratio, 10 log10(255^2 / mse), of at least 50 dB: runs in F32 have 83 dB,
// rounding of single bytes, another picture of this model 35.
static bool looks_like(const flux2_image* image, const char* recorded_name) {
    flux2_image recorded;
    double sum = 0;
    if (flux2_image_load(in_folder(0, recorded_name), &recorded) != FLUX2_OK) {
        return false;
    }
    bool same = image->width == recorded.width && image->height == recorded.height;
    const size_t n = same ? (size_t)recorded.width * (size_t)recorded.height * 3 : 0;
    for (size_t i = 0; i < n; ++i) {
        const double difference = (double)image->rgb[i] - (double)recorded.rgb[i];
        sum += difference * difference;
    }
    flux2_image_free(&recorded);
    return same && sum / (double)n <= 255.0 * 255.0 / 1e5;
}

typedef struct watch {
    int n_calls;
    int n_previews;
    bool seen[FLUX2_STAGE_DECODE + 1];
    bool share_in_range;
    bool refusing;  // at stage `refuse`
    flux2_stage refuse;
    flux2_pipeline* cancel;  // to be cancelled by flux2_cancel
} watch;

static bool on_progress(const flux2_step* step, void* user_data) {
    watch* w = user_data;
    ++w->n_calls;
    w->seen[step->stage] = true;
    w->share_in_range = w->share_in_range && step->share >= 0 && step->share <= 1;
    if (step->preview != NULL && step->preview->rgb != NULL && step->preview->width > 0) {
        ++w->n_previews;
    }
    if (w->cancel != NULL) {
        flux2_cancel(w->cancel);
    }
    return !(w->refusing && step->stage == w->refuse);
}

static watch fresh_watch(void) {
    watch w;
    memset(&w, 0, sizeof(w));
    w.share_in_range = true;
    return w;
}

static flux2_load_options cpu_options(watch* w) {
    flux2_load_options options = flux2_load_options_default();
    options.device = "CPU";
    options.type = "F32";
    options.threads = 2;
    options.progress = w != NULL ? on_progress : NULL;
    options.progress_data = w;
    return options;
}

// The small model has fewer tokens than any tokenizer here, so prompts come as features.
static flux2_request recorded_request(const char* recording) {
    flux2_request request = flux2_request_default();
    request.embeds_file = in_folder(0, "text_encoder.golden.safetensors");
    request.noise_file = in_folder(1, recording);
    return request;
}

static flux2_request text_to_image(void) {
    return recorded_request("pipeline_klein_t2i.golden.safetensors");
}

static flux2_pipeline* load(watch* w) {
    const flux2_load_options options = cpu_options(w);
    flux2_pipeline* pipeline = NULL;
    EXPECT(flux2_load(model_folder, &options, &pipeline) == FLUX2_OK);
    return pipeline;
}

// ---- Tests ----

static void defaults_are_documented(void) {
    const flux2_load_options options = flux2_load_options_default();
    EXPECT(options.size == sizeof(options));
    EXPECT(options.device == NULL && options.type == NULL && options.variant == NULL);
    EXPECT(options.threads == 0 && !options.keep_loaded && options.max_device_bytes == 0);
    EXPECT(options.cache_folder == NULL && options.cache_bytes == 500000000);
    EXPECT(options.progress == NULL && options.progress_data == NULL);

    const flux2_request request = flux2_request_default();
    EXPECT(request.size == sizeof(request));
    EXPECT(request.prompt == NULL && request.negative_prompt == NULL);
    EXPECT(request.width == 0 && request.height == 0 && request.steps == 0);
    EXPECT(request.guidance < 0 && !request.has_seed && !request.fit_size && !request.preview);
    EXPECT(request.references == NULL && request.n_references == 0);
    EXPECT(request.match_reference == -1);
    EXPECT(request.init == NULL && request.strength == 0.75f);
    EXPECT(request.sigmas == NULL && request.n_sigmas == 0 && request.text_length == 0);
    EXPECT(request.generator == NULL);
    EXPECT(request.noise_file == NULL && request.embeds_file == NULL);

    const flux2_result result = flux2_result_default();
    EXPECT(result.size == sizeof(result) && result.image.rgb == NULL);
    const flux2_model_files files = flux2_model_files_default();
    EXPECT(files.size == sizeof(files) && files.transformer == NULL && files.memory == NULL);
}

static void library_and_machine_tell_about_themselves(void) {
    bool cpu = false;
    EXPECT(strchr(flux2_version(), '.') != NULL);
    for (const char* const* name = flux2_devices(); name != NULL && *name != NULL; ++name) {
        cpu = cpu || strcmp(*name, "CPU") == 0;
    }
    EXPECT(cpu);
    EXPECT(flux2_exit_code(FLUX2_OK) == 0);
    EXPECT(flux2_exit_code(FLUX2_BAD_ARGUMENT) == 2);
    EXPECT(flux2_exit_code(FLUX2_UNSUPPORTED) == 3);
    EXPECT(flux2_exit_code(FLUX2_OUT_OF_DISK) == 4);
    EXPECT(flux2_exit_code(FLUX2_BACKEND) == 5);
    EXPECT(flux2_exit_code(FLUX2_CANCELLED) == 130);
    EXPECT(flux2_exit_code(FLUX2_INTERNAL) == 1);
    EXPECT(strcmp(flux2_stage_name(FLUX2_STAGE_DENOISE), "denoising") == 0);
}

static void a_picture_is_the_recorded_one(const char* output) {
    watch w = fresh_watch();
    flux2_pipeline* pipeline = load(&w);
    flux2_result result = flux2_result_default();
    flux2_request request = text_to_image();
    request.has_seed = true;
    request.seed = UINT64_C(0xfedcba9876543210);
    EXPECT(strncmp(flux2_model_name(pipeline), "FLUX.2", 6) == 0);
    EXPECT(strcmp(flux2_device_name(pipeline), "CPU") == 0);
    EXPECT(flux2_generate(pipeline, &request, &result) == FLUX2_OK);
    EXPECT(looks_like(&result.image, "pipeline_klein_t2i.png"));
    EXPECT(result.seed == request.seed);
    EXPECT(result.steps == 4 && result.guidance == 1.0f);  // klein's own
    EXPECT(result.denoise_seconds > 0 && result.decode_seconds > 0 && result.load_seconds > 0);
    EXPECT(w.seen[FLUX2_STAGE_LOAD] && w.seen[FLUX2_STAGE_DENOISE] && w.seen[FLUX2_STAGE_DECODE]);
    EXPECT(w.share_in_range && w.n_previews == 0);

    flux2_image written;
    EXPECT(flux2_image_save(output, &result.image) == FLUX2_OK);
    EXPECT(flux2_image_load(output, &written) == FLUX2_OK);
    EXPECT(written.rgb != NULL && memcmp(written.rgb, result.image.rgb, 128 * 96 * 3) == 0);
    flux2_image_free(&written);
    flux2_image_free(&written);
    EXPECT(written.rgb == NULL && written.width == 0);

    flux2_result_free(&result);
    flux2_result_free(&result);
    EXPECT(result.size == sizeof(result) && result.image.rgb == NULL && result.seed == 0);
    flux2_free(pipeline);
}

static void references_reach_the_model(void) {
    flux2_pipeline* pipeline = load(NULL);
    flux2_result result = flux2_result_default();
    flux2_image references[2];
    EXPECT(flux2_image_load(in_folder(0, "ref_0.png"), &references[0]) == FLUX2_OK);
    EXPECT(flux2_image_load(in_folder(0, "ref_1.png"), &references[1]) == FLUX2_OK);
    flux2_request request = recorded_request("pipeline_klein_edit2.golden.safetensors");
    request.references = references;
    request.n_references = 2;
    EXPECT(flux2_generate(pipeline, &request, &result) == FLUX2_OK);
    EXPECT(looks_like(&result.image, "pipeline_klein_edit2.png"));
    EXPECT(result.encode_references_seconds > 0);
    flux2_result_free(&result);

    request.match_reference = 2;
    EXPECT(flux2_generate(pipeline, &request, &result) == FLUX2_BAD_ARGUMENT);
    request.match_reference = -1;
    references[1].height = 0;
    EXPECT(flux2_generate(pipeline, &request, &result) == FLUX2_BAD_ARGUMENT);
    EXPECT(last_error_says("reference 1 is "));
    request.references = NULL;
    EXPECT(flux2_generate(pipeline, &request, &result) == FLUX2_BAD_ARGUMENT);
    flux2_image_free(&references[0]);
    flux2_image_free(&references[1]);
    flux2_free(pipeline);
}

static void settings_reach_the_model(void) {
    const float sigmas[] = {1.0f, 0.5f, 0.0f};
    watch w = fresh_watch();
    flux2_pipeline* pipeline = load(&w);
    flux2_result result = flux2_result_default();
    flux2_request request = text_to_image();
    request.sigmas = sigmas;
    request.n_sigmas = 3;
    request.preview = true;
    EXPECT(flux2_generate(pipeline, &request, &result) == FLUX2_OK);
    EXPECT(result.steps == 2 && w.n_previews >= 1);
    flux2_result_free(&result);

    uint8_t grey[96 * 64 * 3];
    memset(grey, 128, sizeof(grey));
    const flux2_image init = {96, 64, grey};
    request = flux2_request_default();
    request.embeds_file = in_folder(0, "text_encoder.golden.safetensors");
    request.init = &init;
    request.strength = 0.5f;
    request.width = 130;
    request.fit_size = true;
    request.height = 64;
    request.generator = "cpu";
    EXPECT(flux2_generate(pipeline, &request, &result) == FLUX2_OK);
    EXPECT(result.steps == 2 && result.image.width == 128 && result.image.height == 64);
    flux2_result_free(&result);
    request.fit_size = false;
    EXPECT(flux2_generate(pipeline, &request, &result) == FLUX2_BAD_ARGUMENT);
    request.width = -16;
    EXPECT(flux2_generate(pipeline, &request, &result) == FLUX2_BAD_ARGUMENT);
    request.width = 128;
    request.generator = "dice";
    EXPECT(flux2_generate(pipeline, &request, &result) == FLUX2_BAD_ARGUMENT);
    EXPECT(result.image.rgb == NULL);
    flux2_free(pipeline);
}

static void cancelling_ends_one_picture_only(void) {
    watch w = fresh_watch();
    flux2_pipeline* pipeline = load(&w);
    flux2_result result = flux2_result_default();
    const flux2_request request = text_to_image();
    for (int stage = FLUX2_STAGE_LOAD; stage <= FLUX2_STAGE_DECODE; ++stage) {
        w.refuse = (flux2_stage)stage;
        w.refusing = stage != FLUX2_STAGE_ENCODE_PROMPT && stage != FLUX2_STAGE_ENCODE_REFERENCES;
        if (w.refusing) {
            EXPECT(flux2_generate(pipeline, &request, &result) == FLUX2_CANCELLED);
            EXPECT(last_error_says("cancelled") && result.image.rgb == NULL);
        }
    }
    w = fresh_watch();
    w.cancel = pipeline;
    EXPECT(flux2_generate(pipeline, &request, &result) == FLUX2_CANCELLED);
    EXPECT(w.n_calls == 1);
    w = fresh_watch();
    EXPECT(flux2_cancel(pipeline) == FLUX2_OK);  // nothing is in the making
    EXPECT(flux2_generate(pipeline, &request, &result) == FLUX2_OK);
    EXPECT(looks_like(&result.image, "pipeline_klein_t2i.png"));
    flux2_result_free(&result);
    flux2_free(pipeline);
}

static void files_are_found_and_loaded(void) {
    flux2_model_files files = flux2_model_files_default();
    flux2_pipeline* pipeline = NULL;
    const flux2_load_options options = cpu_options(NULL);
    EXPECT(flux2_find_model(model_folder, NULL, &files) == FLUX2_OK);
    EXPECT(files.transformer != NULL &&
           strcmp(files.transformer, in_folder(0, "flux2.safetensors")) == 0);
    EXPECT(files.text_encoder != NULL && files.vae != NULL && files.choice != NULL);
    EXPECT(flux2_load_files(&files, &options, &pipeline) == FLUX2_OK);
    flux2_free(pipeline);
    EXPECT(flux2_find_model(model_folder, NULL, &files) == FLUX2_OK);  // all are given now
    EXPECT(flux2_find_model(model_folder, "no such", &files) == FLUX2_BAD_ARGUMENT);
    EXPECT(files.vae != NULL);
    flux2_model_files_free(&files);
    flux2_model_files_free(&files);
    EXPECT(files.size == sizeof(files) && files.vae == NULL && files.memory == NULL);

    // Three files by name; without a text encoder only features from a file can be used.
    files.transformer = in_folder(0, "flux2.safetensors");
    files.vae = in_folder(1, "vae.safetensors");
    EXPECT(flux2_load_files(&files, &options, &pipeline) == FLUX2_OK);
    flux2_result result = flux2_result_default();
    flux2_request request = flux2_request_default();
    request.prompt = "a house";
    EXPECT(flux2_generate(pipeline, &request, &result) == FLUX2_BAD_FILE);
    request = text_to_image();
    EXPECT(flux2_generate(pipeline, &request, &result) == FLUX2_OK);
    EXPECT(looks_like(&result.image, "pipeline_klein_t2i.png"));
    flux2_result_free(&result);
    flux2_free(pipeline);

    files.vae = in_folder(1, "flux2.safetensors");
    EXPECT(flux2_load_files(&files, &options, &pipeline) == FLUX2_BAD_FILE);
    EXPECT(pipeline == NULL);
    flux2_model_files_free(&files);  // leaves texts of the caller alone
}

static void bad_files_and_options_are_refused(void) {
    flux2_pipeline* pipeline = NULL;
    flux2_load_options options = cpu_options(NULL);
    EXPECT(flux2_load("/no/such/folder", NULL, &pipeline) == FLUX2_BAD_FILE);
    EXPECT(last_error_says("/no/such/folder") && pipeline == NULL);
    options.device = "CUDA99";
    EXPECT(flux2_load(model_folder, &options, &pipeline) == FLUX2_BAD_ARGUMENT);
    options = cpu_options(NULL);
    options.type = "Q99";
    EXPECT(flux2_load(model_folder, &options, &pipeline) == FLUX2_BAD_ARGUMENT);
    options = cpu_options(NULL);
    options.threads = 513;
    EXPECT(flux2_load(model_folder, &options, &pipeline) == FLUX2_BAD_ARGUMENT);
    options = cpu_options(NULL);
    options.variant = "no such";
    EXPECT(flux2_load(model_folder, &options, &pipeline) == FLUX2_BAD_ARGUMENT);
    flux2_image image;
    EXPECT(flux2_image_load("/no/such/file.png", &image) == FLUX2_BAD_FILE && image.rgb == NULL);
    EXPECT(flux2_image_load(in_folder(0, "vae.safetensors"), &image) == FLUX2_BAD_FILE);
}

static void null_pointers_are_refused(void) {
    flux2_pipeline* pipeline = load(NULL);
    flux2_pipeline* none = pipeline;
    flux2_model_files files = flux2_model_files_default();
    flux2_request request = flux2_request_default();
    flux2_result result = flux2_result_default();
    flux2_image image = {16, 16, NULL};
    EXPECT(flux2_load(NULL, NULL, &none) == FLUX2_BAD_ARGUMENT);
    EXPECT(none == NULL);
    EXPECT(flux2_load_files(NULL, NULL, &none) == FLUX2_BAD_ARGUMENT);
    EXPECT(flux2_load_files(&files, NULL, &none) == FLUX2_BAD_ARGUMENT);
    EXPECT(flux2_load(model_folder, NULL, NULL) == FLUX2_BAD_ARGUMENT);
    EXPECT(flux2_load_files(&files, NULL, NULL) == FLUX2_BAD_ARGUMENT);
    EXPECT(flux2_find_model(NULL, NULL, &files) == FLUX2_BAD_ARGUMENT);
    EXPECT(flux2_find_model(model_folder, NULL, NULL) == FLUX2_BAD_ARGUMENT);
    EXPECT(flux2_generate(NULL, &request, &result) == FLUX2_BAD_ARGUMENT);
    EXPECT(flux2_generate(pipeline, NULL, &result) == FLUX2_BAD_ARGUMENT);
    EXPECT(flux2_generate(pipeline, &request, NULL) == FLUX2_BAD_ARGUMENT);
    EXPECT(flux2_generate(pipeline, &request, &result) == FLUX2_BAD_ARGUMENT);
    EXPECT(last_error_says("prompt"));
    request.prompt = "a house";
    request.n_sigmas = 3;
    EXPECT(flux2_generate(pipeline, &request, &result) == FLUX2_BAD_ARGUMENT);
    EXPECT(flux2_image_load(NULL, &image) == FLUX2_BAD_ARGUMENT);
    EXPECT(flux2_image_load("a.png", NULL) == FLUX2_BAD_ARGUMENT);
    EXPECT(flux2_image_save(NULL, &image) == FLUX2_BAD_ARGUMENT);
    EXPECT(flux2_image_save("a.png", NULL) == FLUX2_BAD_ARGUMENT);
    EXPECT(flux2_image_save("a.png", &image) == FLUX2_BAD_ARGUMENT);
    EXPECT(flux2_cancel(NULL) == FLUX2_BAD_ARGUMENT);
    EXPECT(flux2_model_name(NULL) == NULL && flux2_device_name(NULL) == NULL);
    flux2_free(pipeline);
    flux2_free(NULL);
    flux2_image_free(NULL);
    flux2_result_free(NULL);
    flux2_model_files_free(NULL);
    flux2_request_init(NULL, sizeof(request));
}

static void structs_of_unknown_size_are_refused(void) {
    const size_t wrong[] = {0, sizeof(flux2_request) + 8};
    flux2_pipeline* pipeline = load(NULL);
    flux2_pipeline* other = NULL;
    for (size_t i = 0; i < 2; ++i) {
        flux2_load_options options = cpu_options(NULL);
        flux2_model_files files = flux2_model_files_default();
        flux2_request request = text_to_image();
        flux2_result result = flux2_result_default();
        request.size = wrong[i];
        EXPECT(flux2_generate(pipeline, &request, &result) == FLUX2_BAD_ARGUMENT);
        EXPECT(last_error_says("flux2_request_default()"));
        request.size = sizeof(request);
        options.size = files.size = result.size = wrong[i];
        EXPECT(flux2_generate(pipeline, &request, &result) == FLUX2_BAD_ARGUMENT);
        EXPECT(flux2_load(model_folder, &options, &other) == FLUX2_BAD_ARGUMENT);
        EXPECT(flux2_load_files(&files, NULL, &other) == FLUX2_BAD_ARGUMENT);
        EXPECT(flux2_find_model(model_folder, NULL, &files) == FLUX2_BAD_ARGUMENT);
        flux2_result_free(&result);
        flux2_model_files_free(&files);
    }
    flux2_free(pipeline);
}

// As if the last fields had not been there yet.
static void an_older_caller_gets_defaults(void) {
    watch w = fresh_watch();
    flux2_load_options options = cpu_options(&w);
    options.size = offsetof(flux2_load_options, progress);
    flux2_pipeline* pipeline = NULL;
    EXPECT(flux2_load(model_folder, &options, &pipeline) == FLUX2_OK);

    flux2_request request = text_to_image();
    flux2_result result = flux2_result_default();
    request.size = offsetof(flux2_request, embeds_file);
    EXPECT(flux2_generate(pipeline, &request, &result) == FLUX2_BAD_ARGUMENT);
    EXPECT(last_error_says("prompt"));

    request.size = sizeof(request);
    flux2_result_init(&result, offsetof(flux2_result, load_seconds));
    result.load_seconds = -7;
    result.decode_seconds = -7;
    EXPECT(flux2_generate(pipeline, &request, &result) == FLUX2_OK);
    EXPECT(looks_like(&result.image, "pipeline_klein_t2i.png"));
    EXPECT(result.steps == 4 && result.load_seconds == -7 && result.decode_seconds == -7);
    EXPECT(w.n_calls == 0);
    flux2_result_free(&result);
    EXPECT(result.load_seconds == -7 && result.image.rgb == NULL);
    flux2_free(pipeline);
}

static void on_log(flux2_log_level level, const char* line, void* user_data) {
    int* n_warnings = user_data;
    *n_warnings += level == FLUX2_LOG_WARNING && strstr(line, "guidance") != NULL ? 1 : 0;
}

static void warnings_go_to_the_log(void) {
    int n_warnings = 0;
    flux2_pipeline* pipeline = load(NULL);
    flux2_result result = flux2_result_default();
    flux2_request request = text_to_image();
    request.guidance = 5;  // klein takes none
    EXPECT(flux2_set_log(on_log, &n_warnings) == FLUX2_OK);
    EXPECT(flux2_generate(pipeline, &request, &result) == FLUX2_OK);
    EXPECT(n_warnings == 1);
    flux2_result_free(&result);
    EXPECT(flux2_set_log(NULL, NULL) == FLUX2_OK);
    EXPECT(flux2_generate(pipeline, &request, &result) == FLUX2_OK);
    EXPECT(n_warnings == 1);
    flux2_result_free(&result);
    flux2_free(pipeline);
}

int main(int argc, char** argv) {
    if (argc != 3) {
        fprintf(stderr, "usage: test_c_header FIXTURES/klein PICTURE_TO_WRITE.png\n");
        return 2;
    }
    model_folder = argv[1];
    EXPECT(strcmp(flux2_last_error(), "") == 0);
    defaults_are_documented();
    library_and_machine_tell_about_themselves();
    a_picture_is_the_recorded_one(argv[2]);
    references_reach_the_model();
    settings_reach_the_model();
    cancelling_ends_one_picture_only();
    files_are_found_and_loaded();
    bad_files_and_options_are_refused();
    null_pointers_are_refused();
    structs_of_unknown_size_are_refused();
    an_older_caller_gets_defaults();
    warnings_go_to_the_log();
    printf("%d checks failed\n", n_failed);
    return n_failed == 0 ? 0 : 1;
}
