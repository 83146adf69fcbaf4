// The C interface, compiled as C99: pictures against recordings of the reference, and every way to
// use it wrongly. Usage: test_c_header FIXTURES/klein TINY_MODEL FOLDER_TO_WRITE_TO
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
static const char* tiny_folder;
static const char* output_folder;

// Valid until the next call.
static const char* output(const char* name) {
    static char path[4096];
    snprintf(path, sizeof(path), "%s/%s", output_folder, name);
    return path;
}

// One of three texts, so that several paths can be used together; requests have the first two.
static const char* in_folder(int slot, const char* name) {
    static char paths[3][4096];
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
    if (flux2_image_load(in_folder(2, recorded_name), FLUX2_ALPHA_DROP, &recorded) != FLUX2_OK) {
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
    flux2_cancel_token* raise;  // on the first call
} watch;

static bool on_progress(const flux2_step* step, void* user_data) {
    watch* w = user_data;
    ++w->n_calls;
    w->seen[step->stage] = true;
    w->share_in_range =
        w->share_in_range && step->size == sizeof(*step) && step->share >= 0 && step->share <= 1;
    if (step->preview != NULL && step->preview->rgb != NULL && step->preview->width > 0) {
        ++w->n_previews;
    }
    flux2_cancel_token_raise(w->raise);
    return !(w->refusing && step->stage == w->refuse);
}

static watch fresh_watch(void) {
    watch w;
    memset(&w, 0, sizeof(w));
    w.share_in_range = true;
    return w;
}

static flux2_load_options cpu_options(void) {
    flux2_load_options options = flux2_load_options_default();
    options.device = "CPU";
    options.type = "F32";
    options.threads = 2;
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

static flux2_request watched(flux2_request request, watch* w) {
    request.progress = on_progress;
    request.progress_data = w;
    return request;
}

static flux2_pipeline* load(void) {
    const flux2_load_options options = cpu_options();
    flux2_pipeline* pipeline = NULL;
    EXPECT(flux2_load(model_folder, &options, &pipeline) == FLUX2_OK);
    return pipeline;
}

static flux2_cancel_token* new_token(void) {
    flux2_cancel_token* token = NULL;
    EXPECT(flux2_cancel_token_create(&token) == FLUX2_OK);
    return token;
}

// ---- Tests ----

static void defaults_are_documented(void) {
    const flux2_load_options options = flux2_load_options_default();
    EXPECT(options.size == sizeof(options));
    EXPECT(options.device == NULL && options.type == NULL && options.variant == NULL);
    EXPECT(options.threads == 0 && !options.keep_loaded && options.max_device_bytes == 0);
    EXPECT(options.cache_folder == NULL && options.cache_bytes == 500000000);
    EXPECT(options.repack == 1 && options.unpack == 1);

    const flux2_request request = flux2_request_default();
    EXPECT(request.size == sizeof(request));
    EXPECT(request.prompt == NULL && request.negative_prompt == NULL);
    EXPECT(request.width == 0 && request.height == 0 && request.steps == 0);
    EXPECT(request.guidance < 0 && !request.has_seed && !request.fit_size && !request.preview);
    EXPECT(request.references == NULL && request.n_references == 0);
    EXPECT(request.match_reference == -1);
    EXPECT(request.init == NULL && request.strength < 0);
    EXPECT(request.mask == NULL && request.inpaint_area == FLUX2_INPAINT_WHOLE);
    EXPECT(!request.mask_invert && request.mask_grow == 0 && request.mask_blur == 0);
    EXPECT(request.mask_blend < 0 && request.inpaint_padding < 0);
    EXPECT(request.outpaint_left == 0 && request.outpaint_top == 0);
    EXPECT(request.outpaint_right == 0 && request.outpaint_bottom == 0);
    EXPECT(request.reference_roles == NULL && request.reference_pixels < 0);
    EXPECT(request.cfg_scale < 0 && request.guidance_from == 0 && request.guidance_until == 1);
    EXPECT(!request.keep_colours);
    EXPECT(request.sigmas == NULL && request.n_sigmas == 0 && request.text_length == 0);
    EXPECT(request.generator == NULL);
    EXPECT(request.noise_file == NULL && request.embeds_file == NULL);
    EXPECT(request.progress == NULL && request.progress_data == NULL && request.cancel == NULL);

    EXPECT(request.adapters == NULL && request.n_adapters == 0 && !request.strict_adapters);

    const flux2_adapter adapter = flux2_adapter_default();
    EXPECT(adapter.size == sizeof(adapter) && adapter.strength == 1 && adapter.file == NULL);
    EXPECT(adapter.include == NULL && adapter.exclude == NULL && adapter.block_strengths == NULL);
    const flux2_result result = flux2_result_default();
    EXPECT(result.size == sizeof(result) && result.image.rgb == NULL && result.sigmas == NULL);
    const flux2_memory_plan plan = flux2_memory_plan_default();
    EXPECT(plan.size == sizeof(plan) && plan.n_stages == 0 && plan.memory == NULL);
    const flux2_model_files files = flux2_model_files_default();
    EXPECT(files.size == sizeof(files) && files.transformer == NULL && files.memory == NULL);
    EXPECT(files.taesd == NULL && files.taesd_preview_only == 0);
}

static void library_and_machine_tell_about_themselves(void) {
    bool cpu = false;
    flux2_device_list devices;
    EXPECT(strncmp(flux2_version(), "0.2.", 4) == 0);
    EXPECT(flux2_list_devices(&devices) == FLUX2_OK);
    for (size_t i = 0; i < devices.count; ++i) {
        const flux2_device* device = devices.items[i];
        EXPECT(device->size == sizeof(*device) && device->description != NULL);
        cpu = cpu || (strcmp(device->name, "CPU") == 0 && device->total_bytes > 0 &&
                      device->free_bytes <= device->total_bytes);
    }
    EXPECT(cpu);
    flux2_device_list_free(&devices);
    flux2_device_list_free(&devices);
    EXPECT(devices.count == 0 && devices.items == NULL);
    EXPECT(flux2_exit_code(FLUX2_OK) == 0);
    EXPECT(flux2_exit_code(FLUX2_BAD_ARGUMENT) == 2);
    EXPECT(flux2_exit_code(FLUX2_UNSUPPORTED) == 3);
    EXPECT(flux2_exit_code(FLUX2_OUT_OF_DISK) == 4);
    EXPECT(flux2_exit_code(FLUX2_BACKEND) == 5);
    EXPECT(flux2_exit_code(FLUX2_CANCELLED) == 130);
    EXPECT(flux2_exit_code(FLUX2_INTERNAL) == 1);
    EXPECT(flux2_exit_code((flux2_status)77) == 1);
    EXPECT(strcmp(flux2_stage_name((flux2_stage)99), "working") == 0);
    EXPECT(strcmp(flux2_stage_name(FLUX2_STAGE_DENOISE), "denoising") == 0);
}

static const char* on_wording(const char* setting, void* user_data) {
    return strcmp(setting, "type") == 0 ? user_data : NULL;
}

static void messages_speak_the_words_of_a_program(void) {
    char* text = NULL;
    char option[] = "--type";
    EXPECT(flux2_worded("use a smaller `type` or another `device`; `x`", on_wording, option,
                        &text) == FLUX2_OK);
    EXPECT(text != NULL && strcmp(text, "use a smaller --type or another `device`; `x`") == 0);
    flux2_text_free(text);
    EXPECT(flux2_worded(NULL, on_wording, NULL, &text) == FLUX2_BAD_ARGUMENT && text == NULL);
    EXPECT(flux2_worded("a text", NULL, NULL, &text) == FLUX2_BAD_ARGUMENT);
    EXPECT(flux2_worded("a text", on_wording, NULL, NULL) == FLUX2_BAD_ARGUMENT);
    flux2_text_free(NULL);
}

static void a_picture_is_the_recorded_one(void) {
    watch w = fresh_watch();
    flux2_pipeline* pipeline = load();
    flux2_result result = flux2_result_default();
    flux2_request request = watched(text_to_image(), &w);
    request.has_seed = 1;
    request.seed = UINT64_C(0xfedcba9876543210);
    const flux2_file_info* model = flux2_model_info(pipeline);
    EXPECT(model->size == sizeof(*model) && strncmp(model->name, "FLUX.2", 6) == 0);
    EXPECT(strcmp(model->part, "transformer") == 0 && strcmp(model->variant, "klein") == 0);
    EXPECT(model->default_steps == 4 && model->distilled == 1 && model->n_parameters > 0);
    EXPECT(strcmp(model->path, in_folder(2, "flux2.safetensors")) == 0);
    EXPECT(strcmp(flux2_device_name(pipeline), "CPU") == 0);
    EXPECT(flux2_generate(pipeline, &request, &result) == FLUX2_OK);
    EXPECT(looks_like(&result.image, "pipeline_klein_t2i.png"));
    EXPECT(result.seed == request.seed);
    EXPECT(result.steps == 4 && result.guidance == 1.0f);  // klein's own
    EXPECT(result.n_sigmas == 5 && result.sigmas[0] == 1.0f && result.sigmas[4] == 0.0f);
    EXPECT(result.host_peak > 0 && result.device_peak == 0 && result.prompt_cached == 0);
    EXPECT(result.denoise_seconds > 0 && result.decode_seconds > 0 && result.load_seconds > 0);
    EXPECT(w.seen[FLUX2_STAGE_LOAD] && w.seen[FLUX2_STAGE_DENOISE] && w.seen[FLUX2_STAGE_DECODE]);
    EXPECT(w.share_in_range && w.n_previews == 0);

    flux2_result_free(&result);
    flux2_result_free(&result);
    EXPECT(result.size == sizeof(result) && result.image.rgb == NULL && result.seed == 0);
    EXPECT(result.sigmas == NULL && result.n_sigmas == 0);
    flux2_free(pipeline);
}

// Grey levels along the rows; 16 x 8 pixels.
static flux2_image small_image(uint8_t* pixels) {
    for (int i = 0; i < 16 * 8 * 3; ++i) {
        pixels[i] = (uint8_t)(i / 2);
    }
    const flux2_image image = {16, 8, pixels};
    return image;
}

static bool has_pixels(const flux2_image* image, const uint8_t* pixels) {
    return image->width == 16 && image->height == 8 && memcmp(image->rgb, pixels, 16 * 8 * 3) == 0;
}

static bool has_texts(const flux2_image_text_list* list, const flux2_image_text* texts, size_t n) {
    bool same = list->count == n;
    for (size_t i = 0; same && i < n; ++i) {
        same = strcmp(list->items[i].key, texts[i].key) == 0 &&
               strcmp(list->items[i].text, texts[i].text) == 0;
    }
    return same;
}

static const flux2_image_text kTexts[] = {{"prompt", "a house"}, {"note", "caf\xc3\xa9"}};

static void pictures_go_to_files_and_back(void) {
    uint8_t pixels[16 * 8 * 3];
    const flux2_image image = small_image(pixels);
    flux2_image read;
    flux2_image_text_list texts;
    uint32_t saved = 7;
    const char* path = output("c_api.png");
    remove(path);
    EXPECT(flux2_image_save_new(path, &image, NULL, 0, &saved) == FLUX2_OK && saved == 1);
    EXPECT(flux2_image_save_new(path, &image, kTexts, 2, &saved) == FLUX2_OK && saved == 0);
    EXPECT(flux2_image_texts_load(path, &texts) == FLUX2_OK && texts.count == 0);
    flux2_image_text_list_free(&texts);
    EXPECT(flux2_image_save(path, &image, kTexts, 2) == FLUX2_OK);
    EXPECT(flux2_image_load(path, FLUX2_ALPHA_WHITE, &read) == FLUX2_OK);
    EXPECT(has_pixels(&read, pixels));
    flux2_image_free(&read);
    flux2_image_free(&read);
    EXPECT(read.rgb == NULL && read.width == 0);
    EXPECT(flux2_image_texts_load(path, &texts) == FLUX2_OK && has_texts(&texts, kTexts, 2));
    flux2_image_text_list_free(&texts);
    flux2_image_text_list_free(&texts);
    EXPECT(texts.count == 0 && texts.items == NULL);
    remove(path);

    EXPECT(flux2_image_save(output("c_api.gif"), &image, NULL, 0) == FLUX2_BAD_ARGUMENT);
    EXPECT(flux2_image_save(output("no/folder.png"), &image, NULL, 0) == FLUX2_BAD_FILE);
    EXPECT(flux2_image_texts_load("/no/such/file.png", &texts) == FLUX2_BAD_FILE);
    EXPECT(texts.items == NULL && last_error_says("/no/such/file.png"));
}

static void pictures_go_to_memory_and_back(void) {
    uint8_t pixels[16 * 8 * 3];
    const flux2_image image = small_image(pixels);
    flux2_image read;
    flux2_image_text_list texts;
    flux2_bytes png, jpeg, webp, bmp;
    EXPECT(flux2_image_encode(&image, FLUX2_IMAGE_PNG, kTexts, 2, &png) == FLUX2_OK);
    EXPECT(flux2_image_decode(png.data, png.count, FLUX2_ALPHA_DROP, &read) == FLUX2_OK);
    EXPECT(has_pixels(&read, pixels));
    flux2_image_free(&read);
    EXPECT(flux2_image_texts_decode(png.data, png.count, &texts) == FLUX2_OK);
    EXPECT(has_texts(&texts, kTexts, 2));
    flux2_image_text_list_free(&texts);

    EXPECT(flux2_image_encode(&image, FLUX2_IMAGE_JPEG, kTexts, 2, &jpeg) == FLUX2_OK);
    EXPECT(jpeg.count > 2 && jpeg.data[0] == 0xff && jpeg.data[1] == 0xd8);
    EXPECT(flux2_image_decode(jpeg.data, jpeg.count, FLUX2_ALPHA_DROP, &read) == FLUX2_OK);
    EXPECT(read.width == 16 && read.height == 8);
    flux2_image_free(&read);
    EXPECT(flux2_image_texts_decode(jpeg.data, jpeg.count, &texts) == FLUX2_OK);
    EXPECT(has_texts(&texts, kTexts, 2));
    flux2_image_text_list_free(&texts);

    /* A library without libwebp refuses. */
    const flux2_status encoded = flux2_image_encode(&image, FLUX2_IMAGE_WEBP, kTexts, 2, &webp);
    EXPECT(encoded == FLUX2_OK || encoded == FLUX2_UNSUPPORTED);
    if (encoded == FLUX2_OK) {
        EXPECT(flux2_image_decode(webp.data, webp.count, FLUX2_ALPHA_DROP, &read) == FLUX2_OK);
        EXPECT(read.width == 16 && read.height == 8);
        flux2_image_free(&read);
        EXPECT(flux2_image_texts_decode(webp.data, webp.count, &texts) == FLUX2_OK);
        EXPECT(has_texts(&texts, kTexts, 2));
        flux2_image_text_list_free(&texts);
    }
    flux2_bytes_free(&webp);

    EXPECT(flux2_image_encode(&image, FLUX2_IMAGE_BMP, NULL, 0, &bmp) == FLUX2_OK);
    EXPECT(bmp.count > 16 * 8 * 3 && bmp.data[0] == 'B' && bmp.data[1] == 'M');
    EXPECT(flux2_image_decode(bmp.data, bmp.count, FLUX2_ALPHA_DROP, &read) == FLUX2_BAD_FILE);
    EXPECT(last_error_says("neither a PNG nor a JPEG nor a WebP") && read.rgb == NULL);
    EXPECT(flux2_image_decode(png.data, png.count - 9, FLUX2_ALPHA_DROP, &read) == FLUX2_BAD_FILE);
    EXPECT(flux2_image_texts_decode(bmp.data, bmp.count, &texts) == FLUX2_BAD_FILE);
    flux2_bytes_free(&png);
    flux2_bytes_free(&png);
    EXPECT(png.data == NULL && png.count == 0);
    flux2_bytes_free(&jpeg);
    flux2_bytes_free(&bmp);

    const flux2_image_text bad_key = {"", "text"};
    EXPECT(flux2_image_encode(&image, FLUX2_IMAGE_PNG, &bad_key, 1, &png) == FLUX2_BAD_ARGUMENT);
    EXPECT(flux2_image_encode(&image, (flux2_image_format)4, NULL, 0, &png) == FLUX2_BAD_ARGUMENT);
    EXPECT(flux2_image_decode(pixels, 8, (flux2_alpha)2, &read) == FLUX2_BAD_ARGUMENT);
    EXPECT(png.data == NULL && read.rgb == NULL);
}

// A PNG of one black pixel without any opacity.
static void transparency_is_dropped_or_blended(void) {
    static const uint8_t kClearBlack[] = {
        0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a, 0x00, 0x00, 0x00, 0x0d, 0x49, 0x48,
        0x44, 0x52, 0x00, 0x00, 0x00, 0x01, 0x00, 0x00, 0x00, 0x01, 0x08, 0x06, 0x00, 0x00,
        0x00, 0x1f, 0x15, 0xc4, 0x89, 0x00, 0x00, 0x00, 0x0b, 0x49, 0x44, 0x41, 0x54, 0x78,
        0x9c, 0x63, 0x60, 0x00, 0x02, 0x00, 0x00, 0x05, 0x00, 0x01, 0x7a, 0x5e, 0xab, 0x3f,
        0x00, 0x00, 0x00, 0x00, 0x49, 0x45, 0x4e, 0x44, 0xae, 0x42, 0x60, 0x82};
    flux2_image read;
    EXPECT(flux2_image_decode(kClearBlack, sizeof(kClearBlack), FLUX2_ALPHA_DROP, &read) ==
           FLUX2_OK);
    EXPECT(read.rgb != NULL && read.rgb[0] == 0);
    flux2_image_free(&read);
    EXPECT(flux2_image_decode(kClearBlack, sizeof(kClearBlack), FLUX2_ALPHA_WHITE, &read) ==
           FLUX2_OK);
    EXPECT(read.rgb != NULL && read.rgb[0] == 255);
    flux2_image_free(&read);
}

static void references_reach_the_model(void) {
    flux2_pipeline* pipeline = load();
    flux2_result result = flux2_result_default();
    flux2_image references[2];
    const flux2_alpha alpha = FLUX2_ALPHA_DROP;
    EXPECT(flux2_image_load(in_folder(0, "ref_0.png"), alpha, &references[0]) == FLUX2_OK);
    EXPECT(flux2_image_load(in_folder(0, "ref_1.png"), alpha, &references[1]) == FLUX2_OK);
    flux2_request request = recorded_request("pipeline_klein_edit2.golden.safetensors");
    request.references = references;
    request.n_references = 2;
    EXPECT(flux2_generate(pipeline, &request, &result) == FLUX2_OK);
    EXPECT(looks_like(&result.image, "pipeline_klein_edit2.png"));
    EXPECT(result.encode_references_seconds > 0);
    EXPECT(result.references_encoded == 2 && result.references_cached == 0);
    flux2_result_free(&result);
    EXPECT(flux2_generate(pipeline, &request, &result) == FLUX2_OK);
    EXPECT(looks_like(&result.image, "pipeline_klein_edit2.png"));
    EXPECT(result.references_encoded == 0 && result.references_cached == 2);
    flux2_result_free(&result);

    const char* const roles[2] = {NULL, "style"};
    request.prompt = "a house";
    request.reference_roles = roles;
    request.reference_pixels = 4096;
    EXPECT(flux2_generate(pipeline, &request, &result) == FLUX2_OK);
    EXPECT(strcmp(result.prompt, "a house. Apply the style from image 2.") == 0);
    EXPECT(!looks_like(&result.image, "pipeline_klein_edit2.png"));
    flux2_result_free(&result);
    const char* const unknown[2] = {"stile", NULL};
    request.reference_roles = unknown;
    EXPECT(flux2_generate(pipeline, &request, &result) == FLUX2_BAD_ARGUMENT);
    EXPECT(last_error_says("no role 'stile'"));
    request.reference_roles = NULL;
    request.reference_pixels = 10;
    EXPECT(flux2_generate(pipeline, &request, &result) == FLUX2_BAD_ARGUMENT);
    EXPECT(last_error_says("no room in 10 pixels"));
    request.reference_pixels = -1;

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
    flux2_pipeline* pipeline = load();
    flux2_result result = flux2_result_default();
    flux2_request request = watched(text_to_image(), &w);
    request.sigmas = sigmas;
    request.n_sigmas = 3;
    request.preview = 1;
    EXPECT(flux2_generate(pipeline, &request, &result) == FLUX2_OK);
    EXPECT(result.steps == 2 && w.n_previews >= 1);
    EXPECT(result.n_sigmas == 3 && memcmp(result.sigmas, sigmas, sizeof(sigmas)) == 0);
    flux2_result_free(&result);

    uint8_t grey[96 * 64 * 3];
    memset(grey, 128, sizeof(grey));
    const flux2_image init = {96, 64, grey};
    request = flux2_request_default();
    request.embeds_file = in_folder(0, "text_encoder.golden.safetensors");
    request.init = &init;
    request.strength = 0.5f;
    request.width = 130;
    request.fit_size = 1;
    request.height = 64;
    request.generator = "cpu";
    EXPECT(flux2_generate(pipeline, &request, &result) == FLUX2_OK);
    EXPECT(result.steps == 2 && result.image.width == 128 && result.image.height == 64);
    flux2_result_free(&result);
    request.strength = 0;
    EXPECT(flux2_generate(pipeline, &request, &result) == FLUX2_BAD_ARGUMENT);
    EXPECT(last_error_says("strength"));
    request.strength = 0.5f;
    request.fit_size = 0;
    EXPECT(flux2_generate(pipeline, &request, &result) == FLUX2_BAD_ARGUMENT);
    request.width = -16;
    EXPECT(flux2_generate(pipeline, &request, &result) == FLUX2_BAD_ARGUMENT);
    request.width = 128;
    request.generator = "dice";
    EXPECT(flux2_generate(pipeline, &request, &result) == FLUX2_BAD_ARGUMENT);
    EXPECT(result.image.rgb == NULL);
    flux2_free(pipeline);
}

static void a_part_of_a_picture_is_repainted(void) {
    enum { kWidth = 96, kHeight = 64 };
    uint8_t pixels[kWidth * kHeight * 3];
    uint8_t values[kWidth * kHeight];
    flux2_pipeline* pipeline = load();
    flux2_result result = flux2_result_default();
    flux2_request request = flux2_request_default();
    memset(pixels, 128, sizeof(pixels));
    for (int i = 0; i < kWidth * kHeight; ++i) {
        values[i] = i % kWidth < kWidth / 2 ? 0 : 255;  // the right half
    }
    const flux2_image init = {kWidth, kHeight, pixels};
    flux2_mask mask = {kWidth, kHeight, values};
    request.embeds_file = in_folder(0, "text_encoder.golden.safetensors");
    request.steps = 1;
    request.init = &init;
    request.mask = &mask;
    EXPECT(flux2_generate(pipeline, &request, &result) == FLUX2_OK);
    EXPECT(result.image.width == kWidth && result.image.height == kHeight);
    size_t n_changed_left = 0;
    size_t n_changed_right = 0;
    for (size_t i = 0; i < sizeof(pixels); ++i) {
        const size_t changed = result.image.rgb[i] != pixels[i];
        if (i / 3 % kWidth < kWidth / 2) {
            n_changed_left += changed;
        } else {
            n_changed_right += changed;
        }
    }
    EXPECT(n_changed_left == 0 && n_changed_right > sizeof(pixels) / 4);
    flux2_result_free(&result);
    mask.height = kHeight - 1;
    EXPECT(flux2_generate(pipeline, &request, &result) == FLUX2_BAD_ARGUMENT);
    EXPECT(last_error_says("the mask has 96x63 pixels"));

    request.mask = NULL;
    request.outpaint_right = 32;
    EXPECT(flux2_generate(pipeline, &request, &result) == FLUX2_OK);
    EXPECT(result.image.width == kWidth + 32 && result.image.height == kHeight);
    flux2_result_free(&result);
    flux2_free(pipeline);

    flux2_mask loaded;
    EXPECT(flux2_mask_load(in_folder(0, "ref_0.png"), &loaded) == FLUX2_OK);
    EXPECT(loaded.width > 0 && loaded.height > 0 && loaded.values != NULL);
    flux2_mask_free(&loaded);
    EXPECT(loaded.values == NULL);
    EXPECT(flux2_mask_load("none.png", &loaded) == FLUX2_BAD_FILE && loaded.values == NULL);
}

static void cancelling_ends_one_request_only(void) {
    watch w = fresh_watch();
    flux2_pipeline* pipeline = load();
    flux2_result result = flux2_result_default();
    flux2_request request = watched(text_to_image(), &w);
    for (int stage = FLUX2_STAGE_LOAD; stage <= FLUX2_STAGE_DECODE; ++stage) {
        w.refuse = (flux2_stage)stage;
        w.refusing = stage != FLUX2_STAGE_ENCODE_PROMPT && stage != FLUX2_STAGE_ENCODE_REFERENCES;
        if (w.refusing) {
            EXPECT(flux2_generate(pipeline, &request, &result) == FLUX2_CANCELLED);
            EXPECT(last_error_says("cancelled") && result.image.rgb == NULL);
        }
    }

    flux2_cancel_token* raised = new_token();
    flux2_cancel_token* other = new_token();
    w = fresh_watch();
    w.raise = raised;
    request.cancel = raised;
    EXPECT(!flux2_cancel_token_is_raised(raised));
    EXPECT(flux2_generate(pipeline, &request, &result) == FLUX2_CANCELLED);
    EXPECT(w.n_calls == 1 && flux2_cancel_token_is_raised(raised));
    // It stays raised: a request that waited with it is not begun.
    EXPECT(flux2_generate(pipeline, &request, &result) == FLUX2_CANCELLED);
    EXPECT(w.n_calls == 1 && result.image.rgb == NULL);
    // Requests with another token, or with none, are made.
    w = fresh_watch();
    request.cancel = other;
    EXPECT(flux2_generate(pipeline, &request, &result) == FLUX2_OK);
    EXPECT(looks_like(&result.image, "pipeline_klein_t2i.png"));
    flux2_result_free(&result);
    request.cancel = NULL;
    EXPECT(flux2_generate(pipeline, &request, &result) == FLUX2_OK);
    EXPECT(w.n_calls > 1 && !flux2_cancel_token_is_raised(other));
    flux2_result_free(&result);
    flux2_cancel_token_free(raised);
    flux2_cancel_token_free(other);
    flux2_free(pipeline);
}

static void prompts_are_encoded_ahead(void) {
    const char* const prompts[] = {"a red house", "a tree"};
    const flux2_load_options options = cpu_options();
    watch w = fresh_watch();
    flux2_pipeline* pipeline = NULL;
    flux2_result result = flux2_result_default();
    flux2_request request = watched(flux2_request_default(), &w);
    request.width = request.height = 64;
    request.steps = 1;
    EXPECT(flux2_load(tiny_folder, &options, &pipeline) == FLUX2_OK);

    flux2_cancel_token* token = new_token();
    flux2_cancel_token_raise(token);
    request.cancel = token;
    EXPECT(flux2_encode_prompts(pipeline, &request, prompts, 2) == FLUX2_CANCELLED);
    EXPECT(w.n_calls == 0);
    request.cancel = NULL;
    EXPECT(flux2_encode_prompts(pipeline, &request, prompts, 2) == FLUX2_OK);
    EXPECT(w.seen[FLUX2_STAGE_ENCODE_PROMPT] && !w.seen[FLUX2_STAGE_DENOISE]);
    request.prompt = prompts[1];
    EXPECT(flux2_generate(pipeline, &request, &result) == FLUX2_OK);
    EXPECT(result.prompt_cached == 1 && result.image.width == 64);
    flux2_result_free(&result);

    const char* const missing[] = {"a tree", NULL};
    EXPECT(flux2_encode_prompts(pipeline, &request, missing, 2) == FLUX2_BAD_ARGUMENT);
    EXPECT(last_error_says("prompt 1 "));
    EXPECT(flux2_encode_prompts(pipeline, &request, NULL, 2) == FLUX2_BAD_ARGUMENT);
    EXPECT(flux2_encode_prompts(pipeline, NULL, prompts, 2) == FLUX2_BAD_ARGUMENT);
    EXPECT(flux2_encode_prompts(NULL, &request, prompts, 2) == FLUX2_BAD_ARGUMENT);
    request.width = 63;
    EXPECT(flux2_encode_prompts(pipeline, &request, prompts, 2) == FLUX2_BAD_ARGUMENT);
    flux2_cancel_token_free(token);
    flux2_free(pipeline);
}

static void several_are_made_in_one_pass(void) {
    flux2_pipeline* pipeline = load();
    flux2_request request = flux2_request_default();
    request.embeds_file = in_folder(0, "text_encoder.golden.safetensors");
    request.width = request.height = 64;
    request.steps = 1;
    request.seed = 3;
    request.has_seed = 1;
    flux2_result results[2] = {flux2_result_default(), flux2_result_default()};
    EXPECT(flux2_generate_several(pipeline, &request, 0, results) == FLUX2_BAD_ARGUMENT);
    EXPECT(flux2_generate_several(pipeline, &request, 65, results) == FLUX2_BAD_ARGUMENT);
    EXPECT(results[0].image.rgb == NULL);
    EXPECT(flux2_generate_several(pipeline, &request, 2, results) == FLUX2_OK);
    EXPECT(results[0].seed == 3 && results[1].seed == 4);
    EXPECT(results[1].image.width == 64 && results[1].image.height == 64);
    EXPECT(memcmp(results[0].image.rgb, results[1].image.rgb, 64 * 64 * 3) != 0);
    flux2_result_free(&results[0]);
    flux2_result_free(&results[1]);
    flux2_memory_plan plan = flux2_memory_plan_default();
    EXPECT(flux2_plan_several(pipeline, &request, 3, &plan) == FLUX2_OK && plan.n_pictures == 3);
    flux2_memory_plan_free(&plan);
    flux2_free(pipeline);
}

static void memory_is_planned(void) {
    flux2_pipeline* pipeline = load();
    flux2_memory_plan plan = flux2_memory_plan_default();
    flux2_memory_plan larger = flux2_memory_plan_default();
    flux2_request request = flux2_request_default();
    request.width = request.height = 128;
    EXPECT(flux2_plan(pipeline, &request, &plan) == FLUX2_OK);
    EXPECT(plan.n_stages == 3 && plan.host_peak > 0 && plan.device_peak == 0);
    for (size_t i = 0; i < plan.n_stages; ++i) {
        EXPECT(plan.stages[i]->size == sizeof(flux2_stage_memory));
        EXPECT(strcmp(plan.stages[i]->placement, "CPU") == 0);
        EXPECT(plan.stages[i]->host_weights + plan.stages[i]->mapped > 0);
        EXPECT(plan.stages[i]->device_weights + plan.stages[i]->device_compute == 0);
        EXPECT(plan.host_peak >= plan.stages[i]->host_weights + plan.stages[i]->host_compute);
        EXPECT(plan.stages[i]->seconds > 0 && plan.stages[i]->seconds < plan.seconds);
    }
    EXPECT(strcmp(plan.stages[1]->stage, "transformer") == 0);
    request.width = 192;
    EXPECT(flux2_plan(pipeline, &request, &larger) == FLUX2_OK);
    EXPECT(larger.host_peak > plan.host_peak);
    flux2_memory_plan_free(&larger);
    flux2_memory_plan_free(&plan);
    flux2_memory_plan_free(&plan);
    EXPECT(plan.size == sizeof(plan) && plan.n_stages == 0 && plan.stages == NULL);

    request.width = 63;
    EXPECT(flux2_plan(pipeline, &request, &plan) == FLUX2_BAD_ARGUMENT && plan.memory == NULL);
    EXPECT(flux2_plan(NULL, &request, &plan) == FLUX2_BAD_ARGUMENT);
    EXPECT(flux2_plan(pipeline, NULL, &plan) == FLUX2_BAD_ARGUMENT);
    EXPECT(flux2_plan(pipeline, &request, NULL) == FLUX2_BAD_ARGUMENT);
    flux2_free(pipeline);
}

// Weights of the text encoder, the transformer and the decoder. The cache keeps the speed that
// plans measure for the next one.
static void planned_weights(flux2_load_options options, uint64_t weights[3]) {
    flux2_pipeline* pipeline = NULL;
    flux2_memory_plan plan = flux2_memory_plan_default();
    flux2_request request = flux2_request_default();
    request.width = request.height = 128;
    options.cache_folder = output("c_api_cache");
    EXPECT(flux2_load(model_folder, &options, &pipeline) == FLUX2_OK);
    EXPECT(flux2_plan(pipeline, &request, &plan) == FLUX2_OK && plan.n_stages == 3);
    for (size_t i = 0; i < 3 && i < plan.n_stages; ++i) {
        weights[i] = plan.stages[i]->host_weights + plan.stages[i]->mapped;
    }
    flux2_memory_plan_free(&plan);
    flux2_free(pipeline);
}

static void parts_have_devices_and_types_of_their_own(void) {
    uint64_t all_f32[3] = {0};
    flux2_load_options options = cpu_options();
    planned_weights(options, all_f32);
    const char** types[3] = {&options.text_encoder_type, &options.transformer_type,
                             &options.vae_type};
    for (size_t part = 0; part < 3; ++part) {
        uint64_t weights[3] = {0};
        options = cpu_options();
        *types[part] = "F16";
        planned_weights(options, weights);
        for (size_t i = 0; i < 3; ++i) {
            EXPECT(i == part ? weights[i] < all_f32[i] : weights[i] == all_f32[i]);
        }
    }
    const char** devices[3] = {&options.text_encoder_device, &options.transformer_device,
                               &options.vae_device};
    flux2_pipeline* pipeline = NULL;
    for (size_t part = 0; part < 3; ++part) {
        options = cpu_options();
        *devices[part] = "CUDA99";
        EXPECT(flux2_load(model_folder, &options, &pipeline) == FLUX2_BAD_ARGUMENT);
        EXPECT(last_error_says("CUDA99"));
    }
    // The device for all is not asked for when each part has one.
    options = cpu_options();
    options.device = "CUDA99";
    options.text_encoder_device = options.transformer_device = options.vae_device = "CPU";
    EXPECT(flux2_load(model_folder, &options, &pipeline) == FLUX2_OK);
    EXPECT(strcmp(flux2_device_name(pipeline), "CPU") == 0);
    flux2_free(pipeline);
    options = cpu_options();
    options.transformer_device = "CPU,CPU";
    options.split = "2,1";
    EXPECT(flux2_load(model_folder, &options, &pipeline) == FLUX2_BAD_ARGUMENT);
    EXPECT(last_error_says("twice"));
    options.transformer_device = "CPU";
    EXPECT(flux2_load(model_folder, &options, &pipeline) == FLUX2_BAD_ARGUMENT);
    EXPECT(last_error_says("2 shares for 1 devices"));
    options.split = "0";
    EXPECT(flux2_load(model_folder, &options, &pipeline) == FLUX2_BAD_ARGUMENT);
}

static void files_are_inspected(void) {
    flux2_file_list transformer, encoder, other;
    char* reason = NULL;
    EXPECT(flux2_inspect(in_folder(0, "flux2.safetensors"), &transformer) == FLUX2_OK);
    EXPECT(transformer.count == 1 && strcmp(transformer.items[0]->part, "transformer") == 0);
    EXPECT(strcmp(transformer.items[0]->format, "safetensors") == 0);
    EXPECT(transformer.items[0]->size_bytes > 0 && transformer.items[0]->latent_channels > 0);
    EXPECT(flux2_inspect(in_folder(0, "text_encoder.safetensors"), &encoder) == FLUX2_OK);
    EXPECT(encoder.count == 1 && encoder.items[0]->text_width > 0);
    EXPECT(encoder.items[0]->n_notes >= 1 && encoder.items[0]->notes[0][0] != '\0');
    EXPECT(flux2_misfit(transformer.items[0], encoder.items[0], &reason) == FLUX2_OK);
    EXPECT(reason == NULL);
    EXPECT(flux2_inspect(tiny_folder, &other) == FLUX2_BAD_FILE && other.items == NULL);
    char path[4096];
    snprintf(path, sizeof(path), "%s/text-encoder-bf16.gguf", tiny_folder);
    EXPECT(flux2_inspect(path, &other) == FLUX2_OK);
    EXPECT(flux2_misfit(other.items[0], transformer.items[0], &reason) == FLUX2_OK);
    EXPECT(reason != NULL && strstr(reason, "text features") != NULL);
    flux2_text_free(reason);

    EXPECT(flux2_misfit(NULL, encoder.items[0], &reason) == FLUX2_BAD_ARGUMENT);
    EXPECT(flux2_misfit(encoder.items[0], NULL, &reason) == FLUX2_BAD_ARGUMENT);
    EXPECT(flux2_misfit(encoder.items[0], encoder.items[0], NULL) == FLUX2_BAD_ARGUMENT);
    flux2_file_info foreign = *encoder.items[0];
    foreign.size = 8;
    EXPECT(flux2_misfit(&foreign, encoder.items[0], &reason) == FLUX2_BAD_ARGUMENT);
    EXPECT(reason == NULL && last_error_says("flux2_inspect"));
    flux2_file_list_free(&transformer);
    flux2_file_list_free(&transformer);
    EXPECT(transformer.count == 0 && transformer.items == NULL);
    flux2_file_list_free(&encoder);
    flux2_file_list_free(&other);
    EXPECT(flux2_inspect("/no/such/file.gguf", &other) == FLUX2_BAD_FILE && other.items == NULL);
    EXPECT(flux2_inspect(NULL, &other) == FLUX2_BAD_ARGUMENT);
    EXPECT(flux2_inspect("/no/such/file.gguf", NULL) == FLUX2_BAD_ARGUMENT);
}

// A LoRA of rank 2 for one matrix [128, 128] of the model, all zeros, with a key that says nothing.
static bool write_adapter(const char* path) {
    const char header[] =
        "{\"diffusion_model.double_blocks.0.img_attn.proj.lora_A.weight\":"
        "{\"dtype\":\"F32\",\"shape\":[2,128],\"data_offsets\":[0,1024]},"
        "\"diffusion_model.double_blocks.0.img_attn.proj.lora_B.weight\":"
        "{\"dtype\":\"F32\",\"shape\":[128,2],\"data_offsets\":[1024,2048]},"
        "\"nonsense\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[2048,2052]},"
        "\"__metadata__\":{\"ss_output_name\":\"small\"}}";
    const uint8_t data[2052] = {0};
    const size_t n = sizeof(header) - 1;
    const uint8_t length[8] = {(uint8_t)(n & 0xff), (uint8_t)(n >> 8)};
    FILE* file = fopen(path, "wb");
    if (file == NULL) {
        return false;
    }
    const bool written = fwrite(length, 1, 8, file) == 8 && fwrite(header, 1, n, file) == n &&
                         fwrite(data, 1, sizeof(data), file) == sizeof(data);
    return fclose(file) == 0 && written;
}

static void adapters_are_inspected(void) {
    char path[4096];
    flux2_adapter_info* info = NULL;
    snprintf(path, sizeof(path), "%s", output("adapter.safetensors"));
    EXPECT(write_adapter(path));
    EXPECT(flux2_is_adapter(path));
    EXPECT(!flux2_is_adapter(in_folder(0, "flux2.safetensors")));
    EXPECT(!flux2_is_adapter("/no/such/file.gguf") && !flux2_is_adapter(NULL));
    EXPECT(flux2_inspect_adapter(path, &info) == FLUX2_OK && info != NULL);
    if (info != NULL) {
        EXPECT(info->size == sizeof(*info) && strcmp(info->path, path) == 0);
        EXPECT(strcmp(info->kinds, "LoRA") == 0 && strcmp(info->ranks, "2") == 0);
        EXPECT(strcmp(info->format, "safetensors") == 0 && info->dialect[0] != '\0');
        EXPECT(info->n_modules == 1 && strstr(info->touches, "double blocks 0") != NULL);
        EXPECT(info->made_for[0] != '\0' && info->size_bytes > 2052);
        EXPECT(info->n_unused == 1 && strstr(info->unused[0], "nonsense") != NULL);
        for (size_t i = 0; i < info->n_facts; ++i) {
            EXPECT(info->facts[i].name[0] != '\0' && info->facts[i].text[0] != '\0');
        }
    }
    flux2_adapter_info_free(info);
    flux2_adapter_info_free(NULL);
    EXPECT(flux2_inspect_adapter("/no/such/file.gguf", &info) == FLUX2_BAD_FILE && info == NULL);
    EXPECT(flux2_inspect_adapter(NULL, &info) == FLUX2_BAD_ARGUMENT);
    EXPECT(flux2_inspect_adapter(path, NULL) == FLUX2_BAD_ARGUMENT);
}

static void adapters_that_cannot_be_meant_are_refused(void) {
    flux2_pipeline* pipeline = load();
    flux2_adapter adapter = flux2_adapter_default();
    const flux2_adapter* adapters[1] = {NULL};
    flux2_result result = flux2_result_default();
    flux2_request request = text_to_image();
    request.n_adapters = 1;
    EXPECT(flux2_generate(pipeline, &request, &result) == FLUX2_BAD_ARGUMENT);
    EXPECT(last_error_says("flux2_request.adapters is a null pointer"));
    request.adapters = adapters;
    EXPECT(flux2_generate(pipeline, &request, &result) == FLUX2_BAD_ARGUMENT);
    EXPECT(last_error_says("flux2_adapter"));
    adapters[0] = &adapter;
    EXPECT(flux2_generate(pipeline, &request, &result) == FLUX2_BAD_ARGUMENT);
    EXPECT(last_error_says("flux2_adapter.file"));
    adapter.file = output("adapter.safetensors");
    adapter.size = sizeof(adapter) + 8;
    EXPECT(flux2_generate(pipeline, &request, &result) == FLUX2_BAD_ARGUMENT);
    EXPECT(last_error_says("flux2_adapter_default()"));
    // As if the last fields had not been there yet; the adapter holds zeros, so nothing changes.
    adapter.size = offsetof(flux2_adapter, strength);
    EXPECT(flux2_generate(pipeline, &request, &result) == FLUX2_OK);
    EXPECT(looks_like(&result.image, "pipeline_klein_t2i.png"));
    flux2_result_free(&result);
    flux2_free(pipeline);
}

static void files_are_found_and_loaded(void) {
    flux2_model_files files = flux2_model_files_default();
    flux2_pipeline* pipeline = NULL;
    const flux2_load_options options = cpu_options();
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
    flux2_load_options options = cpu_options();
    EXPECT(flux2_load("/no/such/folder", NULL, &pipeline) == FLUX2_BAD_FILE);
    EXPECT(last_error_says("/no/such/folder") && pipeline == NULL);
    options.device = "CUDA99";
    EXPECT(flux2_load(model_folder, &options, &pipeline) == FLUX2_BAD_ARGUMENT);
    options = cpu_options();
    options.type = "Q99";
    EXPECT(flux2_load(model_folder, &options, &pipeline) == FLUX2_BAD_ARGUMENT);
    options = cpu_options();
    options.threads = 513;
    EXPECT(flux2_load(model_folder, &options, &pipeline) == FLUX2_BAD_ARGUMENT);
    options = cpu_options();
    options.variant = "no such";
    EXPECT(flux2_load(model_folder, &options, &pipeline) == FLUX2_BAD_ARGUMENT);
    flux2_image image;
    const flux2_alpha alpha = FLUX2_ALPHA_DROP;
    EXPECT(flux2_image_load("/no/such/file.png", alpha, &image) == FLUX2_BAD_FILE);
    EXPECT(image.rgb == NULL);
    EXPECT(flux2_image_load(in_folder(0, "vae.safetensors"), alpha, &image) == FLUX2_BAD_FILE);
}

static void null_pointers_are_refused(void) {
    flux2_pipeline* pipeline = load();
    flux2_pipeline* none = pipeline;
    flux2_model_files files = flux2_model_files_default();
    flux2_request request = flux2_request_default();
    flux2_result result = flux2_result_default();
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
    EXPECT(flux2_model_info(NULL) == NULL && flux2_device_name(NULL) == NULL);
    EXPECT(flux2_list_devices(NULL) == FLUX2_BAD_ARGUMENT);
    EXPECT(flux2_cancel_token_create(NULL) == FLUX2_BAD_ARGUMENT);
    EXPECT(!flux2_cancel_token_is_raised(NULL));
    flux2_cancel_token_raise(NULL);
    flux2_cancel_token_free(NULL);
    flux2_device_list_free(NULL);
    flux2_file_list_free(NULL);
    flux2_memory_plan_free(NULL);
    flux2_free(pipeline);
    flux2_free(NULL);
    flux2_result_free(NULL);
    flux2_model_files_free(NULL);
    flux2_request_init(NULL, sizeof(request));
}

static void null_pointers_of_pictures_are_refused(void) {
    const flux2_alpha alpha = FLUX2_ALPHA_DROP;
    const flux2_image_format format = FLUX2_IMAGE_PNG;
    const flux2_image_text no_key = {NULL, "text"};
    const flux2_image_text no_text = {"key", NULL};
    flux2_image image = {16, 16, NULL};
    flux2_image read;
    flux2_image_text_list texts;
    flux2_bytes bytes;
    uint32_t saved = 1;
    uint8_t pixels[16 * 8 * 3];
    EXPECT(flux2_image_load(NULL, alpha, &read) == FLUX2_BAD_ARGUMENT);
    EXPECT(flux2_image_load("a.png", alpha, NULL) == FLUX2_BAD_ARGUMENT);
    EXPECT(flux2_image_decode(NULL, 8, alpha, &read) == FLUX2_BAD_ARGUMENT);
    EXPECT(flux2_image_decode(pixels, 8, alpha, NULL) == FLUX2_BAD_ARGUMENT);
    EXPECT(flux2_image_texts_load(NULL, &texts) == FLUX2_BAD_ARGUMENT);
    EXPECT(flux2_image_texts_load("a.png", NULL) == FLUX2_BAD_ARGUMENT);
    EXPECT(flux2_image_texts_decode(NULL, 8, &texts) == FLUX2_BAD_ARGUMENT);
    EXPECT(flux2_image_texts_decode(pixels, 8, NULL) == FLUX2_BAD_ARGUMENT);
    EXPECT(flux2_image_save("a.png", &image, NULL, 0) == FLUX2_BAD_ARGUMENT);
    EXPECT(last_error_says("without pixels"));
    EXPECT(flux2_image_save_new("a.png", &image, NULL, 0, &saved) == FLUX2_BAD_ARGUMENT);
    EXPECT(saved == 0);
    EXPECT(flux2_image_encode(&image, format, NULL, 0, &bytes) == FLUX2_BAD_ARGUMENT);
    image = small_image(pixels);
    EXPECT(flux2_image_save(NULL, &image, NULL, 0) == FLUX2_BAD_ARGUMENT);
    EXPECT(flux2_image_save("a.png", NULL, NULL, 0) == FLUX2_BAD_ARGUMENT);
    EXPECT(flux2_image_save("a.png", &image, NULL, 1) == FLUX2_BAD_ARGUMENT);
    EXPECT(flux2_image_save("a.png", &image, &no_key, 1) == FLUX2_BAD_ARGUMENT);
    EXPECT(flux2_image_save("a.png", &image, &no_text, 1) == FLUX2_BAD_ARGUMENT);
    EXPECT(flux2_image_save_new(NULL, &image, NULL, 0, &saved) == FLUX2_BAD_ARGUMENT);
    EXPECT(flux2_image_save_new("a.png", NULL, NULL, 0, &saved) == FLUX2_BAD_ARGUMENT);
    EXPECT(flux2_image_save_new("a.png", &image, NULL, 0, NULL) == FLUX2_BAD_ARGUMENT);
    EXPECT(flux2_image_encode(NULL, format, NULL, 0, &bytes) == FLUX2_BAD_ARGUMENT);
    EXPECT(flux2_image_encode(&image, format, NULL, 0, NULL) == FLUX2_BAD_ARGUMENT);
    flux2_image_free(NULL);
    flux2_image_text_list_free(NULL);
    flux2_bytes_free(NULL);
}

static void structs_of_unknown_size_are_refused(void) {
    const size_t wrong[] = {0, sizeof(flux2_request) + 8};
    flux2_pipeline* pipeline = load();
    flux2_pipeline* other = NULL;
    for (size_t i = 0; i < 2; ++i) {
        flux2_load_options options = cpu_options();
        flux2_model_files files = flux2_model_files_default();
        flux2_request request = text_to_image();
        flux2_result result = flux2_result_default();
        request.size = wrong[i];
        EXPECT(flux2_generate(pipeline, &request, &result) == FLUX2_BAD_ARGUMENT);
        EXPECT(last_error_says("flux2_request_default()"));
        request.size = sizeof(request);
        flux2_memory_plan plan = flux2_memory_plan_default();
        options.size = files.size = result.size = plan.size = wrong[i];
        EXPECT(flux2_plan(pipeline, &request, &plan) == FLUX2_BAD_ARGUMENT);
        flux2_memory_plan_free(&plan);
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
    flux2_load_options options = cpu_options();
    options.size = offsetof(flux2_load_options, repack);
    options.repack = options.unpack = 77;
    flux2_pipeline* pipeline = NULL;
    EXPECT(flux2_load(model_folder, &options, &pipeline) == FLUX2_OK);

    watch w = fresh_watch();
    flux2_request request = watched(text_to_image(), &w);
    flux2_result result = flux2_result_default();
    request.size = offsetof(flux2_request, embeds_file);
    EXPECT(flux2_generate(pipeline, &request, &result) == FLUX2_BAD_ARGUMENT);
    EXPECT(last_error_says("prompt"));

    request.size = offsetof(flux2_request, progress);
    flux2_result_init(&result, offsetof(flux2_result, load_seconds));
    result.load_seconds = -7;
    result.steps = -7;
    EXPECT(flux2_generate(pipeline, &request, &result) == FLUX2_OK);
    EXPECT(looks_like(&result.image, "pipeline_klein_t2i.png"));
    EXPECT(result.n_sigmas == 5 && result.load_seconds == -7 && result.steps == -7);
    EXPECT(w.n_calls == 0);
    flux2_result_free(&result);
    EXPECT(result.load_seconds == -7 && result.image.rgb == NULL);

    flux2_memory_plan plan;
    flux2_memory_plan_init(&plan, offsetof(flux2_memory_plan, mapped_peak));
    plan.mapped_peak = 7;
    request.size = sizeof(request);
    EXPECT(flux2_plan(pipeline, &request, &plan) == FLUX2_OK);
    EXPECT(plan.n_stages >= 2 && plan.host_peak > 0 && plan.mapped_peak == 7);
    flux2_memory_plan_free(&plan);
    flux2_free(pipeline);
}

static void on_log(flux2_log_level level, const char* line, void* user_data) {
    int* n_warnings = user_data;
    *n_warnings += level == FLUX2_LOG_WARNING && strstr(line, "guidance") != NULL ? 1 : 0;
}

static void warnings_go_to_the_log(void) {
    int n_warnings = 0;
    flux2_pipeline* pipeline = load();
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
    if (argc != 4) {
        fprintf(stderr, "usage: test_c_header FIXTURES/klein TINY_MODEL FOLDER_TO_WRITE_TO\n");
        return 2;
    }
    model_folder = argv[1];
    tiny_folder = argv[2];
    output_folder = argv[3];
    EXPECT(strcmp(flux2_last_error(), "") == 0);
    defaults_are_documented();
    library_and_machine_tell_about_themselves();
    messages_speak_the_words_of_a_program();
    a_picture_is_the_recorded_one();
    pictures_go_to_files_and_back();
    pictures_go_to_memory_and_back();
    transparency_is_dropped_or_blended();
    references_reach_the_model();
    settings_reach_the_model();
    a_part_of_a_picture_is_repainted();
    cancelling_ends_one_request_only();
    prompts_are_encoded_ahead();
    several_are_made_in_one_pass();
    memory_is_planned();
    files_are_inspected();
    adapters_are_inspected();
    adapters_that_cannot_be_meant_are_refused();
    files_are_found_and_loaded();
    parts_have_devices_and_types_of_their_own();
    bad_files_and_options_are_refused();
    null_pointers_are_refused();
    null_pointers_of_pictures_are_refused();
    structs_of_unknown_size_are_refused();
    an_older_caller_gets_defaults();
    warnings_go_to_the_log();
    printf("%d checks failed\n", n_failed);
    return n_failed == 0 ? 0 : 1;
}
