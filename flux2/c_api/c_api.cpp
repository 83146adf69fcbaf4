// The functions of flux2.h and error.h. When a struct grows, the new field goes to the end and must
// leave no padding, since an older caller leaves padding uninitialised; tests/c_api/layout.c checks
// both.
#include <flux2/flux2.h>
#include <flux2/flux2.hpp>
#include "base/check.hpp"
#include "c_api/from_c.hpp"
#include "c_api/guarded.hpp"
#include "c_api/sized_struct.hpp"
#include "c_api/to_c.hpp"

#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

using namespace flux2::c_api;
using flux2::check;
using flux2::ErrorKind;

namespace {

// The fields that every version of a caller has.
constexpr size_t kSmallestModelFiles = offsetof(flux2_model_files, memory) + sizeof(void*);
constexpr size_t kSmallestResult = offsetof(flux2_result, n_sigmas) + sizeof(size_t);
constexpr size_t kSmallestPlan = offsetof(flux2_memory_plan, memory) + sizeof(void*);

// Checked before the results are read.
int picture_count(size_t n) {
    check(n >= 1 && n <= flux2::Pipeline::kMostPictures, ErrorKind::bad_argument, n,
          " pictures cannot be made at a time; use 1 to ", flux2::Pipeline::kMostPictures);
    return static_cast<int>(n);
}

}  // namespace

struct flux2_pipeline {
    flux2_pipeline(const flux2::ModelFiles& files, const flux2::LoadOptions& options)
        : pipeline(flux2::Pipeline::load(files, options)),
          facts(pipeline.model()),
          model(to_c(facts)) {}

    flux2::Pipeline pipeline;
    FileFacts facts;
    flux2_file_info model;
};

extern "C" {

// ---- Errors; this library and this machine ----

const char* flux2_last_error(void) {
    return last_error().c_str();
}

int flux2_exit_code(flux2_status status) {
    return status == FLUX2_OK
               ? 0
               : flux2::exit_code(static_cast<ErrorKind>(static_cast<int>(status) - 1));
}

flux2_status flux2_worded(const char* text, flux2_wording wording, void* user_data, char** result) {
    return guarded([&] {
        check_given(result, "result");
        *result = nullptr;
        check_given(text, "text");
        check(wording != nullptr, ErrorKind::bad_argument, "wording is a null pointer");
        *result = copy_of(flux2::worded(text, [&](flux2::Setting setting) {
            const std::string name = flux2::to_string(setting);
            return text_or(wording(name.c_str(), user_data), "`" + name + "`");
        }));
    });
}

void flux2_text_free(char* text) {
    delete[] text;
}

const char* flux2_version(void) {
    return flux2::version();
}

flux2_status flux2_list_devices(flux2_device_list* list) {
    return guarded([&] {
        check_given(list, "list");
        *list = {};
        fill<DeviceMemory>(*list, flux2::list_devices());
    });
}

flux2_status flux2_add_servers(const char* servers) {
    return guarded([&] {
        check_given(servers, "servers");
        flux2::add_servers(servers);
    });
}

void flux2_device_list_free(flux2_device_list* list) {
    free_list<DeviceMemory>(list);
}

flux2_status flux2_set_log(flux2_log log, void* user_data) {
    return guarded([&] {
        if (log == nullptr) {
            flux2::set_log({});
            return;
        }
        flux2::set_log([log, user_data](flux2::LogLevel level, const std::string& line) {
            log(static_cast<flux2_log_level>(level), line.c_str(), user_data);
        });
    });
}

// ---- Model files ----

void flux2_model_files_init(flux2_model_files* files, size_t size) {
    init(files, size, flux2_model_files{});
}

flux2_status flux2_find_model(const char* folder, const char* variant, flux2_model_files* files) {
    return guarded([&] {
        check_given(folder, "folder");
        check_size(files, "flux2_model_files", kSmallestModelFiles);
        const flux2_model_files given = completed(files, "flux2_model_files", flux2_model_files{});
        const flux2::FoundModel found =
            flux2::find_model(path_of(folder), text_or(variant), to_files(given));
        auto texts = std::make_unique<FoundTexts>(
            FoundTexts{utf8(found.files.transformer), utf8(found.files.text_encoder),
                       utf8(found.files.vae), utf8(found.files.taesd), found.choice});
        delete static_cast<FoundTexts*>(files->memory);
        files->transformer = c_text(texts->transformer);
        files->text_encoder = c_text(texts->text_encoder);
        files->vae = c_text(texts->vae);
        files->taesd = c_text(texts->taesd);
        files->choice = c_text(texts->choice);
        files->memory = texts.release();
    });
}

void flux2_model_files_free(flux2_model_files* files) {
    if (is_known(files, kSmallestModelFiles)) {
        delete static_cast<FoundTexts*>(files->memory);
        init(files, files->size, flux2_model_files{});
    }
}

flux2_status flux2_inspect(const char* path, flux2_file_list* parts) {
    return guarded([&] {
        check_given(parts, "parts");
        *parts = {};
        check_given(path, "path");
        std::vector<FileFacts> facts;
        for (flux2::FileInfo& info : flux2::inspect_parts(path_of(path))) {
            facts.emplace_back(std::move(info));
        }
        fill<FileMemory>(*parts, std::move(facts));
    });
}

void flux2_file_list_free(flux2_file_list* parts) {
    free_list<FileMemory>(parts);
}

flux2_status flux2_misfit(const flux2_file_info* a, const flux2_file_info* b, char** reason) {
    return guarded([&] {
        check_given(reason, "reason");
        *reason = nullptr;
        if (const auto why = flux2::misfit(to_info(a, "a"), to_info(b, "b"))) {
            *reason = copy_of(*why);
        }
    });
}

// ---- Adapters ----

void flux2_adapter_init(flux2_adapter* adapter, size_t size) {
    init(adapter, size, default_adapter());
}

bool flux2_is_adapter(const char* path) {
    bool is_one = false;
    guarded([&] { is_one = path != nullptr && flux2::is_adapter(path_of(path)); });
    return is_one;
}

flux2_status flux2_inspect_adapter(const char* path, flux2_adapter_info** info) {
    return guarded([&] {
        check_given(info, "info");
        *info = nullptr;
        check_given(path, "path");
        *info = new AdapterFacts(flux2::inspect_adapter(path_of(path)));
    });
}

void flux2_adapter_info_free(flux2_adapter_info* info) {
    delete static_cast<AdapterFacts*>(info);
}

// ---- Loading ----

void flux2_load_options_init(flux2_load_options* options, size_t size) {
    init(options, size, default_load_options());
}

flux2_status flux2_load(const char* folder, const flux2_load_options* options,
                        flux2_pipeline** pipeline) {
    return guarded([&] {
        check_given(pipeline, "pipeline");
        *pipeline = nullptr;
        check_given(folder, "folder");
        const flux2::LoadOptions load = to_options(options);
        const flux2::FoundModel found = flux2::find_model(path_of(folder), load.variant);
        *pipeline = new flux2_pipeline(found.files, load);
    });
}

flux2_status flux2_load_files(const flux2_model_files* files, const flux2_load_options* options,
                              flux2_pipeline** pipeline) {
    return guarded([&] {
        check_given(pipeline, "pipeline");
        *pipeline = nullptr;
        const flux2_model_files given = completed(files, "flux2_model_files", flux2_model_files{});
        check_given(given.transformer, "flux2_model_files.transformer");
        *pipeline = new flux2_pipeline(to_files(given), to_options(options));
    });
}

void flux2_free(flux2_pipeline* pipeline) {
    delete pipeline;
}

const flux2_file_info* flux2_model_info(const flux2_pipeline* pipeline) {
    return pipeline != nullptr ? &pipeline->model : nullptr;
}

const char* flux2_device_name(const flux2_pipeline* pipeline) {
    return pipeline != nullptr ? pipeline->pipeline.device().c_str() : nullptr;
}

// ---- Requests ----

flux2_status flux2_cancel_token_create(flux2_cancel_token** token) {
    return guarded([&] {
        check_given(token, "token");
        *token = nullptr;
        *token = new flux2_cancel_token;
    });
}

void flux2_cancel_token_raise(flux2_cancel_token* token) {
    if (token != nullptr) {
        token->raised = true;
    }
}

bool flux2_cancel_token_is_raised(const flux2_cancel_token* token) {
    return token != nullptr && token->raised;
}

void flux2_cancel_token_free(flux2_cancel_token* token) {
    delete token;
}

const char* flux2_stage_name(flux2_stage stage) {
    return flux2::to_string(static_cast<flux2::Stage>(stage));
}

void flux2_request_init(flux2_request* request, size_t size) {
    init(request, size, default_request());
}

// ---- Making pictures ----

void flux2_result_init(flux2_result* result, size_t size) {
    init(result, size, flux2_result{});
}

const char* flux2_reference_role(size_t index) {
    const std::vector<flux2::ReferenceRole>& roles = flux2::reference_roles();
    return index < roles.size() ? roles[index].word.c_str() : nullptr;
}

const char* flux2_reference_sentence(size_t index) {
    const std::vector<flux2::ReferenceRole>& roles = flux2::reference_roles();
    return index < roles.size() ? roles[index].sentence.c_str() : nullptr;
}

flux2_status flux2_generate(flux2_pipeline* pipeline, const flux2_request* request,
                            flux2_result* result) {
    return flux2_generate_several(pipeline, request, 1, result);
}

flux2_status flux2_generate_several(flux2_pipeline* pipeline, const flux2_request* request,
                                    size_t n, flux2_result* results) {
    return guarded([&] {
        check_given(pipeline, "pipeline");
        const flux2_request given = completed(request, "flux2_request", default_request());
        const int n_pictures = picture_count(n);
        check_size(results, "flux2_result", kSmallestResult);
        // A caller built with an older header has smaller results: they lie that far apart.
        const size_t size = results->size;
        const auto result = [&](size_t i) {
            return reinterpret_cast<flux2_result*>(reinterpret_cast<char*>(results) + i * size);
        };
        for (size_t i = 1; i < n; ++i) {
            check(result(i)->size == size, ErrorKind::bad_argument, "flux2_result ", i,
                  " has size ", result(i)->size, ", the first ", size, "; initialise all of them");
        }
        check(given.prompt != nullptr || given.embeds_file != nullptr, ErrorKind::bad_argument,
              "flux2_request.prompt is a null pointer; say what the picture shows");
        size_t n_made = 0;
        const auto keep = [&](const flux2::Result& made) {
            const flux2_result full = to_c(made, size);
            std::memcpy(static_cast<void*>(result(n_made)), &full, size);
            ++n_made;
        };
        pipeline->pipeline.generate_several(to_request(given), n_pictures, keep,
                                            to_progress(given));
    });
}

void flux2_result_free(flux2_result* result) {
    if (is_known(result, kSmallestResult)) {
        flux2_image_free(&result->image);
        delete[] result->sigmas;
        if (result->size > offsetof(flux2_result, prompt)) {
            delete[] result->prompt;
        }
        init(result, result->size, flux2_result{});
    }
}

flux2_status flux2_encode_prompts(flux2_pipeline* pipeline, const flux2_request* request,
                                  const char* const* prompts, size_t n_prompts) {
    return guarded([&] {
        check_given(pipeline, "pipeline");
        const flux2_request given = completed(request, "flux2_request", default_request());
        check_given(prompts, "prompts");
        std::vector<std::string> texts;
        for (size_t i = 0; i < n_prompts; ++i) {
            check(prompts[i] != nullptr, ErrorKind::bad_argument, "prompt ", i,
                  " is a null pointer");
            texts.emplace_back(prompts[i]);
        }
        const size_t n_held =
            pipeline->pipeline.encode_prompts(to_request(given), texts, to_progress(given));
        check(n_held == n_prompts, ErrorKind::out_of_memory, "there is memory for ", n_held, " of ",
              n_prompts, " prompts, the first ones; use these, then encode the others");
    });
}

// ---- Memory ----

void flux2_memory_plan_init(flux2_memory_plan* plan, size_t size) {
    init(plan, size, flux2_memory_plan{});
}

flux2_status flux2_plan(flux2_pipeline* pipeline, const flux2_request* request,
                        flux2_memory_plan* plan) {
    return flux2_plan_several(pipeline, request, 1, plan);
}

flux2_status flux2_plan_several(flux2_pipeline* pipeline, const flux2_request* request, size_t n,
                                flux2_memory_plan* plan) {
    return guarded([&] {
        check_given(pipeline, "pipeline");
        const flux2_request given = completed(request, "flux2_request", default_request());
        check_size(plan, "flux2_memory_plan", kSmallestPlan);
        flux2::MemoryPlan made = pipeline->pipeline.plan(to_request(given), picture_count(n));
        auto memory = std::make_unique<PlanMemory>(std::move(made.stages));
        const flux2_memory_plan full = {plan->size,
                                        memory->items.size(),
                                        memory->pointers.data(),
                                        memory.get(),
                                        made.device_peak,
                                        made.host_peak,
                                        made.mapped_peak,
                                        static_cast<uint64_t>(made.n_pictures),
                                        made.seconds};
        std::memcpy(static_cast<void*>(plan), &full, plan->size);
        memory.release();
    });
}

void flux2_memory_plan_free(flux2_memory_plan* plan) {
    if (is_known(plan, kSmallestPlan)) {
        delete static_cast<PlanMemory*>(plan->memory);
        init(plan, plan->size, flux2_memory_plan{});
    }
}

}  // extern "C"
