#include "train/training_data.hpp"

#include "base/byte_size.hpp"
#include "base/check.hpp"
#include "base/image_limits.hpp"
#include "base/ram.hpp"
#include "pipeline/encoded_images.hpp"
#include "pipeline/features.hpp"
#include "pipeline/latents.hpp"
#include "pipeline/tensor_cache.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

namespace flux2 {
namespace {

namespace fs = std::filesystem;

// What a cache of a training set may take on disk: some thousand pictures with captions.
constexpr uint64_t kMostCacheBytes = 100'000'000'000;

uint64_t bytes_of(const HostTensor& tensor) {
    return tensor.data.size() * sizeof(float);
}

// Caches by folder; stores of features and latents borrow them.
class Caches {
  public:
    Caches(const Model& model, LoadedModel& loaded_model, fs::path common)
        : model_(model), loaded_model_(loaded_model), common_(std::move(common)) {}

    struct Stores {
        TensorCache cache;
        FeatureStore features;
        EncodedImages images;

        Stores(const Model& model, LoadedModel& loaded_model, const fs::path& folder)
            : cache(folder, kMostCacheBytes),
              features(model, loaded_model, cache),
              images(model, loaded_model, cache, 0) {}
        Stores(const Stores&) = delete;
        Stores& operator=(const Stores&) = delete;
    };
    Stores& of(const DatasetSource& source) {
        return in(source.cache_directory.empty() ? common_ : source.cache_directory);
    }
    Stores& common() { return in(common_); }

  private:
    Stores& in(const fs::path& folder) {
        return stores_.try_emplace(folder.string(), model_, loaded_model_, folder).first->second;
    }

    const Model& model_;
    LoadedModel& loaded_model_;
    const fs::path common_;
    std::map<std::string, Stores> stores_;
};

LatentGrid grid_of(const HostTensor& latents) {
    return {to_tokens(latents), latents.ne[1], latents.ne[0]};
}

// Encodes captions and pictures one after the other and tells which share is done.
class Encoder {
  public:
    Encoder(const Model& model, LoadedModel& loaded_model, const EncodingOptions& options,
            size_t n_total, const OnEncoded& on_encoded)
        : model_(model),
          caches_(model, loaded_model, options.cache_folder),
          options_(options),
          n_total_(n_total),
          on_encoded_(on_encoded) {}

    void encode_captions(const std::vector<DatasetSource>& sources,
                         const std::vector<DatasetPicture>& pictures, TrainingData& data) {
        std::map<std::string, std::vector<size_t>> pictures_of;
        std::map<Caches::Stores*, std::vector<PromptKey>> captions_in;
        for (size_t i = 0; i < pictures.size(); ++i) {
            const std::string caption =
                with_trigger_word(pictures[i].caption, options_.trigger_word);
            std::vector<size_t>& same = pictures_of[caption];
            if (same.empty()) {
                captions_in[&caches_.of(sources[pictures[i].source])].push_back(key_of(caption));
            }
            same.push_back(i);
        }
        if (options_.without_caption && !pictures_of.contains("")) {
            captions_in[&caches_.common()].push_back(key_of(""));
        }
        for (const auto& [stores, captions] : captions_in) {
            FeatureStore& features = stores->features;
            data.n_encoded += features.prepare_ahead(
                captions, [&](const PromptKey& key) { count(pictures_of[key.prompt].size()); });
            for (const PromptKey& key : captions) {
                const SharedTensor txt = features.get(key);
                for (const size_t i : pictures_of[key.prompt]) {
                    data.pictures[i].txt = txt;
                }
                if (options_.without_caption && key.prompt.empty()) {
                    data.no_caption = txt;
                }
            }
        }
    }

    void encode_pictures(const std::vector<DatasetSource>& sources,
                         const std::vector<DatasetPicture>& pictures, TrainingData& data) {
        for (size_t i = 0; i < pictures.size(); ++i) {
            const DatasetSource& source = sources[pictures[i].source];
            EncodedImages& images = caches_.of(source).images;
            const auto encode = [&](const Image& image) {
                const EncodedImage encoded = images.get(image);
                data.n_encoded += encoded.was_cached ? 0 : 1;
                return grid_of(*encoded.latents);
            };
            EncodedPicture& result = data.pictures[i];
            const Image image = load_trained(pictures[i]);
            result.latents = encode(image);
            if (options_.mirrored) {
                result.mirrored = encode(flipped(image));
            }
            for (size_t control = 0; control < pictures[i].controls.size(); ++control) {
                result.references.push_back(encode(load_control(pictures[i], control, source)));
            }
            count(1);
        }
    }

  private:
    PromptKey key_of(const std::string& caption) const {
        return {caption, model_.text.text_length};
    }

    void count(size_t n) {
        n_done_ += n;
        if (on_encoded_) {
            on_encoded_(static_cast<double>(n_done_) / static_cast<double>(n_total_));
        }
    }

    const Model& model_;
    Caches caches_;
    const EncodingOptions& options_;
    size_t n_done_ = 0, n_total_;
    const OnEncoded& on_encoded_;
};

}  // namespace

std::string with_trigger_word(const std::string& caption, const std::string& trigger_word) {
    if (trigger_word.empty() || caption.find(trigger_word) != std::string::npos) {
        return caption;
    }
    return caption.empty() ? trigger_word : trigger_word + ", " + caption;
}

uint64_t TrainingData::bytes() const {
    std::set<const HostTensor*> counted;
    uint64_t bytes = 0;
    const auto add_text = [&](const SharedTensor& txt) {
        if (txt && counted.insert(txt.get()).second) {
            bytes += bytes_of(*txt);
        }
    };
    add_text(no_caption);
    for (const EncodedPicture& picture : pictures) {
        add_text(picture.txt);
        bytes += bytes_of(picture.latents.tokens);
        bytes += picture.mirrored ? bytes_of(picture.mirrored->tokens) : 0;
        for (const LatentGrid& reference : picture.references) {
            bytes += bytes_of(reference.tokens);
        }
    }
    return bytes;
}

uint64_t encoded_bytes(const Model& model, const std::vector<DatasetPicture>& pictures,
                       const EncodingOptions& options) {
    std::set<std::string> captions;
    uint64_t n_tokens = 0;
    for (const DatasetPicture& picture : pictures) {
        captions.insert(with_trigger_word(picture.caption, options.trigger_word));
        const auto n_own = static_cast<uint64_t>(picture.trained.width / kImageGrid) *
                           static_cast<uint64_t>(picture.trained.height / kImageGrid);
        // Controls count as if they had the picture's size; others only where they are not resized.
        n_tokens += n_own * (1 + (options.mirrored ? 1 : 0) + picture.controls.size());
    }
    if (options.without_caption) {
        captions.insert("");
    }
    const auto of_caption = static_cast<uint64_t>(model.sizes.text_width * model.text.text_length);
    return sizeof(float) *
           (captions.size() * of_caption + n_tokens * static_cast<uint64_t>(model.sizes.channels));
}

TrainingData encode_dataset(const Model& model, LoadedModel& loaded_model,
                            const std::vector<DatasetSource>& sources,
                            const std::vector<DatasetPicture>& pictures,
                            const EncodingOptions& options, const OnEncoded& on_encoded) {
    const uint64_t needed = encoded_bytes(model, pictures, options);
    const uint64_t available = available_ram_bytes();
    check(available == 0 || needed < available, ErrorKind::out_of_memory, "the encoded dataset of ",
          pictures.size(), " pictures takes ", gigabytes(needed), " of RAM, and ",
          gigabytes(available), " are free; close other programs or use fewer pictures");
    TrainingData data;
    data.pictures.resize(pictures.size());
    Encoder encoder(model, loaded_model, options, 2 * pictures.size(), on_encoded);
    encoder.encode_captions(sources, pictures, data);
    loaded_model.free(Part::text_encoder);
    encoder.encode_pictures(sources, pictures, data);
    loaded_model.free_all();
    return data;
}

}  // namespace flux2
