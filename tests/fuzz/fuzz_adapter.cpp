// Feeds arbitrary bytes to the reader of LoRA files: an Error is expected, anything else is a
// finding. The reader maps files, so that the bytes go through one.
#include <flux2/error.hpp>
#include "adapters/adapter_file.hpp"
#include "touch_tensors.hpp"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>

namespace {

namespace fs = std::filesystem;

// A folder of this process, removed at its end.
class Folder {
  public:
    Folder()
        : path_(fs::temp_directory_path() /
                ("flux2-fuzz-" + std::to_string(std::random_device()()))) {
        fs::create_directory(path_);
    }
    ~Folder() {
        std::error_code ignored;
        fs::remove_all(path_, ignored);
    }
    Folder(const Folder&) = delete;
    Folder& operator=(const Folder&) = delete;

    fs::path file() const { return path_ / "x"; }

  private:
    fs::path path_;
};

// Every tensor of a module is in the file, and its sizes are positive where they are known.
void check_modules(const flux2::AdapterFile& file) {
    flux2::TensorDirectory used;
    for (const flux2::AdapterModule& module : file.modules()) {
        for (const auto& [role, tensor] : module.tensors) {
            used.tensors.push_back(*tensor);
        }
        const bool known = module.n_out > 0 || module.n_in > 0;
        if (module.tensor.empty() || !known || module.n_out < 0 || module.n_in < 0 ||
            module.share < 0 || module.share >= module.n_shares) {
            __builtin_trap();
        }
    }
    flux2::fuzz::touch_tensors(used);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    static const Folder folder;
    {
        std::ofstream out(folder.file(), std::ios::binary | std::ios::trunc);
        out.write(reinterpret_cast<const char*>(data), static_cast<std::streamsize>(size));
    }
    try {
        const auto file = flux2::AdapterFile::open(folder.file());
        check_modules(file);
        file.kinds();
        file.ranks();
    } catch (const flux2::Error&) {
    }
    return 0;
}
