// From what flux2.hpp returns to the structs of flux2.h, with the memory behind them.
#pragma once

#include <flux2/flux2.h>
#include <flux2/flux2.hpp>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace flux2::c_api {

std::string utf8(const std::filesystem::path& path);
// Null for an empty text; valid as long as the text.
const char* c_text(const std::string& text);

// Text or bytes of the library's own, for the caller to free.
template <typename T>
T* copy_of(const T* values, size_t n) {
    auto copy = std::make_unique<T[]>(n);
    std::copy(values, values + n, copy.get());
    return copy.release();
}
char* copy_of(const std::string& text);

// Behind flux2_model_files.memory.
struct FoundTexts {
    std::string transformer, text_encoder, vae, taesd, choice;
};

// A FileInfo, and what of it C needs in another form.
struct FileFacts {
    FileInfo info;
    std::string path;
    std::vector<const char*> notes;  // of `info`, whose notes stay in place when this is moved

    explicit FileFacts(FileInfo given);
    FileFacts(FileFacts&&) noexcept = default;
    FileFacts& operator=(FileFacts&&) noexcept = default;
};

// An AdapterInfo, and what of it C needs in another form; a caller gets the base.
struct AdapterFacts : flux2_adapter_info {
    explicit AdapterFacts(AdapterInfo given);
    AdapterFacts(const AdapterFacts&) = delete;
    AdapterFacts& operator=(const AdapterFacts&) = delete;

    AdapterInfo source;
    std::string path_text;
    std::vector<flux2_adapter_fact> fact_items;
    std::vector<const char*> unused_items;
};

// Texts are borrowed from what is given.
flux2_file_info to_c(const FileFacts& facts);
flux2_image_text to_c(const ImageText& text);
flux2_device to_c(const DeviceInfo& device);
flux2_stage_memory to_c(const StageMemory& stage);
// Pixels and noise levels are copied, for the caller to free.
flux2_image to_c(const Image& image);
flux2_mask to_c(const Mask& mask);
flux2_result to_c(const Result& made, size_t size);

// The memory of a list made by the library: its items and their texts. Callers get pointers to
// items where these may grow.
template <typename Source, typename Item>
struct ListMemory {
    explicit ListMemory(std::vector<Source> given) : sources(std::move(given)) {
        for (const Source& source : sources) {
            items.push_back(to_c(source));
        }
        for (const Item& item : items) {
            pointers.push_back(&item);
        }
    }

    std::vector<Source> sources;
    std::vector<Item> items;
    std::vector<const Item*> pointers;
};
using DeviceMemory = ListMemory<DeviceInfo, flux2_device>;
using FileMemory = ListMemory<FileFacts, flux2_file_info>;
using PlanMemory = ListMemory<StageMemory, flux2_stage_memory>;
using TextMemory = ListMemory<ImageText, flux2_image_text>;

template <typename Memory, typename List, typename Source>
void fill(List& list, std::vector<Source> sources) {
    auto memory = std::make_unique<Memory>(std::move(sources));
    list = {memory->items.size(), memory->pointers.data(), memory.get()};
    memory.release();
}

void fill(flux2_image_text_list& list, std::vector<ImageText> texts);

template <typename Memory, typename List>
void free_list(List* list) {
    if (list != nullptr) {
        delete static_cast<Memory*>(list->memory);
        *list = {};
    }
}

}  // namespace flux2::c_api
