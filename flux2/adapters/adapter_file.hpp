// An opened LoRA file of any dialect and kind: its modules, keys that are not used, and what its
// metadata says.
#pragma once

#include "adapters/adapter_module.hpp"
#include "formats/tensor_source.hpp"

#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace flux2 {

// A key of the file that has no effect.
struct UnusedKey {
    std::string key;
    std::string reason;  // "its pair lora_up is missing"
};

// Move-only; owns the mapped file, in which the modules' tensors lie.
class AdapterFile {
  public:
    // Reads the header only, apart from single values such as alpha. Throws bad_file for a broken
    // file and for one of which no key is understood, unsupported for a file of another model or
    // kind, each saying what it is.
    static AdapterFile open(const std::filesystem::path& path);

    std::string file() const { return source_.path().string(); }
    const TensorSource& source() const { return source_; }
    // Of the file and of the scales that its modules have by it and by a configuration beside it:
    // files of equal identity make equal changes.
    const std::string& identity() const { return identity_; }
    // At least one. Of each the shapes of its own tensors agree with each other.
    const std::vector<AdapterModule>& modules() const { return modules_; }
    const std::vector<UnusedKey>& unused() const { return unused_; }

    std::string dialect() const { return dialect_; }  // whose names: "kohya", "peft", "diffusers"
    // "LoRA", or several: "LoKr, diff".
    std::string kinds() const;
    // "16", or several: "8, 16".
    std::string ranks() const;
    // Which model it was made for, by its shapes: "FLUX.2 klein 4B"; "unknown" when they do not
    // tell.
    std::string made_for() const { return made_for_; }
    // Metadata worth showing, in order: {"trigger words", "..."}, {"trained on", "flux2_klein_4b"}.
    const std::vector<std::pair<std::string, std::string>>& facts() const { return facts_; }
    // Whether its metadata says that it was trained on a base model; unset when it says nothing.
    std::optional<bool> trained_on_base() const { return trained_on_base_; }

  private:
    explicit AdapterFile(TensorSource source);

    TensorSource source_;
    std::string identity_;
    std::vector<AdapterModule> modules_;
    std::vector<UnusedKey> unused_;
    std::string dialect_;
    std::string made_for_;
    std::vector<std::pair<std::string, std::string>> facts_;
    std::optional<bool> trained_on_base_;
};

// Whether the file's keys are those of an adapter; false for anything that cannot be opened.
bool is_adapter(const TensorSource& source);

}  // namespace flux2
