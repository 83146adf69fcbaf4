#include "commands/inspect.hpp"

#include <flux2/flux2.hpp>
#include "base/parse_arguments.hpp"
#include "base/text_stream.hpp"
#include "common/model_store.hpp"
#include "common/options.hpp"

#include <cxxopts.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <iomanip>
#include <iostream>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace flux2::cli {
namespace {

namespace fs = std::filesystem;

// What was found out about the arguments, in their order.
struct Findings {
    std::vector<FileInfo> files;
    nlohmann::json listed = nlohmann::json::array();  // the files as JSON, unreadable ones too
    int exit_code = 0;
};

// The first bytes of a file; zeros after its end.
std::string beginning_of(const fs::path& path) {
    constexpr size_t kBytes = 32;
    std::string start(kBytes, '\0');
    std::ifstream(path, std::ios::binary).read(start.data(), kBytes);
    return start;
}

bool is_readable_picture(std::string_view start) {
    return start.starts_with("\x89PNG") || start.starts_with("\xff\xd8\xff") ||
           (start.starts_with("RIFF") && start.substr(8, 4) == "WEBP");
}

// The name of a picture format that flux2 does not read, by the first bytes; null for other files.
const char* other_picture(std::string_view start) {
    if (start.starts_with("GIF87a") || start.starts_with("GIF89a")) {
        return "a GIF";
    }
    if (start.starts_with(std::string_view("II*\0", 4)) ||
        start.starts_with(std::string_view("MM\0*", 4))) {
        return "a TIFF";
    }
    const std::string_view brand = start.substr(4, 8);
    if (brand == "ftypavif" || brand == "ftypheic") {
        return brand == "ftypavif" ? "an AVIF" : "a HEIC";
    }
    return nullptr;
}

struct ImageSize {
    int64_t width, height;
};

// The size of a BMP, from its header; nothing for other files.
std::optional<ImageSize> bmp_size(std::string_view start) {
    const auto number = [&](size_t at) {
        uint32_t value = 0;
        for (size_t i = 4; i-- > 0;) {
            value = value << 8 | static_cast<uint8_t>(start[at + i]);
        }
        return value;
    };
    // Valid lengths of the second header. A safetensors file may begin with "BM" too.
    constexpr std::array<uint32_t, 6> kHeaders = {40, 52, 56, 64, 108, 124};
    if (!start.starts_with("BM") ||
        std::find(kHeaders.begin(), kHeaders.end(), number(14)) == kHeaders.end()) {
        return std::nullopt;
    }
    // A negative height: the rows go from top to bottom.
    return ImageSize{static_cast<int32_t>(number(18)),
                     std::abs(int64_t{static_cast<int32_t>(number(22))})};
}

// The metadata in a picture.
void add_picture(Findings& findings, const fs::path& path, ImageSize size,
                 const std::vector<ImageText>& texts, bool as_json) {
    nlohmann::json picture = {{"path", path.string()},
                              {"part", "picture"},
                              {"width", size.width},
                              {"height", size.height},
                              {"texts", nlohmann::json::object()}};
    if (!as_json) {
        std::cout << path.string() << "\n  picture: " << size.width << "x" << size.height
                  << (texts.empty() ? ", nothing is stored in it about how it was made" : "")
                  << "\n";
    }
    for (const ImageText& text : texts) {
        picture["texts"][text.key] = text.text;
        if (!as_json) {
            std::cout << "  " << text.key << ": " << text.text << "\n";
        }
    }
    findings.listed.push_back(picture);
}

// "3.88 billion", "1.2 million"
std::string rounded(double n) {
    const bool billions = n >= 1e9;
    TextStream text;
    text << std::setprecision(3) << n / (billions ? 1e9 : 1e6)
         << (billions ? " billion" : " million");
    return text.str();
}

void print_file(const FileInfo& file) {
    std::cout << file.path.string() << "\n  " << file.part << ": " << file.name;
    if (!file.variant.empty()) {
        std::cout << ", variant " << file.variant
                  << (file.distilled ? ", distilled (" : ", not distilled (") << file.variant_reason
                  << ")";
    }
    std::cout << "\n  " << file.format << ", " << file.naming << " names, " << file.types
              << "\n  stored as: " << file.scheme << "\n  "
              << rounded(static_cast<double>(file.n_parameters)) << " parameters, "
              << (file.size_bytes + 500'000) / 1'000'000 << " MB\n";
    if (const std::string licence = licence_of(file.path); !licence.empty()) {
        std::cout << "  licence: " << licence << "\n";
    }
    if (file.part == "transformer") {
        std::cout << "  takes text features " << file.text_width << " wide, works on "
                  << file.latent_channels << " latent channels\n  by default " << file.default_width
                  << "x" << file.default_height << ", " << file.default_steps << " steps, guidance "
                  << file.default_guidance << "\n";
    } else if (file.part == "text encoder") {
        std::cout << "  gives text features " << file.text_width << " wide\n";
    } else {
        std::cout << "  makes " << file.latent_channels << " latent channels\n";
    }
    std::cout << "  goes with: " << file.partners << "\n";
    for (const std::string& note : file.notes) {
        std::cout << "  note: " << note << "\n";
    }
}

// What to run next with these parts of one file.
void print_next(const fs::path& path, const std::vector<FileInfo>& parts) {
    const auto has = [&](std::string_view part) {
        return std::any_of(parts.begin(), parts.end(),
                           [&](const FileInfo& info) { return info.part == part; });
    };
    std::cout << "  next: flux2 --diffusion-model "
              << (has("transformer") ? path.string() : "TRANSFORMER");
    if (!has("transformer") || !has("text encoder")) {
        std::cout << " --llm " << (has("text encoder") ? path.string() : "TEXT_ENCODER");
    }
    if (has("tiny autoencoder")) {
        std::cout << " --taesd " << path.string();
    } else if (!has("transformer") || !has("autoencoder")) {
        std::cout << " --vae " << (has("autoencoder") ? path.string() : "AUTOENCODER");
    }
    std::cout << " -p \"a red house by the sea\"\n";
    if (parts.front().format != "GGUF") {
        std::cout << "        flux2-convert " << path.string() << " -o "
                  << (parts.size() > 1 ? "FOLDER" : path.stem().string() + ".gguf")
                  << ", to load faster and to choose a type\n";
    }
}

nlohmann::json to_json(const FileInfo& file) {
    nlohmann::json json = {{"path", file.path.string()},
                           {"part", file.part},
                           {"name", file.name},
                           {"format", file.format},
                           {"naming", file.naming},
                           {"types", file.types},
                           {"scheme", file.scheme},
                           {"partners", file.partners},
                           {"notes", file.notes},
                           {"parameters", file.n_parameters},
                           {"size_bytes", file.size_bytes}};
    if (const std::string licence = licence_of(file.path); !licence.empty()) {
        json["licence"] = licence;
    }
    if (file.text_width > 0) {
        json["text_width"] = file.text_width;
    }
    if (file.latent_channels > 0) {
        json["latent_channels"] = file.latent_channels;
    }
    if (file.part == "transformer") {
        json["variant"] = file.variant;
        json["variant_reason"] = file.variant_reason;
        json["distilled"] = file.distilled;
        json["default_steps"] = file.default_steps;
        json["default_guidance"] = file.default_guidance;
    }
    return json;
}

void print_adapter(const AdapterInfo& adapter) {
    constexpr size_t kMaxUnused = 5;
    std::cout << adapter.path.string() << "\n  adapter: " << adapter.kinds
              << (adapter.ranks.empty() ? "" : ", rank " + adapter.ranks)
              << "\n  made for: " << adapter.made_for << "\n  " << adapter.format << ", "
              << adapter.dialect << " names, " << (adapter.size_bytes + 500'000) / 1'000'000
              << " MB\n  " << adapter.n_modules << (adapter.n_modules == 1 ? " module" : " modules")
              << ", " << adapter.touches << "\n";
    for (const auto& [what, text] : adapter.facts) {
        std::cout << "  " << what << ": " << text << "\n";
    }
    const size_t n_unused = adapter.unused.size();
    for (size_t i = 0; i < std::min(n_unused, kMaxUnused); ++i) {
        std::cout << "  not used: " << adapter.unused[i] << "\n";
    }
    if (n_unused > kMaxUnused) {
        std::cout << "  not used: " << n_unused - kMaxUnused << " more keys\n";
    }
    std::cout << "  next: flux2 -m FOLDER --lora " << adapter.path.string()
              << ":0.8 -p \"a red house by the sea\"\n";
}

nlohmann::json to_json(const AdapterInfo& adapter) {
    nlohmann::json facts = nlohmann::json::object();
    for (const auto& [what, text] : adapter.facts) {
        facts[what] = text;
    }
    return {{"path", adapter.path.string()},
            {"part", "adapter"},
            {"kinds", adapter.kinds},
            {"dialect", adapter.dialect},
            {"format", adapter.format},
            {"ranks", adapter.ranks},
            {"made_for", adapter.made_for},
            {"touches", adapter.touches},
            {"facts", facts},
            {"unused", adapter.unused},
            {"modules", adapter.n_modules},
            {"size_bytes", adapter.size_bytes}};
}

void add_adapter(Findings& findings, const fs::path& path, bool as_json) {
    const AdapterInfo adapter = inspect_adapter(path);
    findings.listed.push_back(to_json(adapter));
    if (!as_json) {
        print_adapter(adapter);
    }
}

// Replaces settings by option names in the library's texts.
void word(FileInfo& file) {
    file.partners = in_options(file.partners);
    file.variant_reason = in_options(file.variant_reason);
    for (std::string& note : file.notes) {
        note = in_options(note);
    }
}

// Returns the parts that the file holds.
std::vector<FileInfo> add_file(Findings& findings, const fs::path& path, bool as_json) {
    std::vector<FileInfo> parts = inspect_parts(path);
    for (FileInfo& file : parts) {
        word(file);
        findings.files.push_back(file);
        findings.listed.push_back(to_json(file));
        if (!as_json) {
            print_file(file);
        }
    }
    return parts;
}

void add_folder(Findings& findings, const fs::path& folder, bool as_json) {
    const FoundModel found = find_model(folder);
    if (!as_json) {
        std::cout << folder.string() << ": " << found.choice << "\n";
    }
    std::set<fs::path> seen;  // a file with several parts is listed several times
    for (const fs::path& path :
         {found.files.transformer, found.files.text_encoder, found.files.vae}) {
        if (!path.empty() && seen.insert(path).second) {
            add_file(findings, path, as_json);
        }
    }
    if (!as_json) {
        std::cout << "  next: flux2 -m " << folder.string()
                  << (found.files.transformer.empty() ? " --diffusion-model TRANSFORMER" : "")
                  << (found.files.text_encoder.empty() ? " --llm TEXT_ENCODER" : "")
                  << (found.files.vae.empty() ? " --vae AUTOENCODER" : "")
                  << " -p \"a red house by the sea\"\n";
    }
}

void add_path(Findings& findings, const fs::path& path, bool as_json) {
    std::error_code ignored;
    if (fs::is_directory(path, ignored)) {
        return add_folder(findings, path, as_json);
    }
    const std::string start = beginning_of(path);
    if (is_readable_picture(start)) {
        const Image image = load_image(path);
        return add_picture(findings, path, {image.width, image.height}, read_image_texts(path),
                           as_json);
    }
    if (const auto size = bmp_size(start)) {
        return add_picture(findings, path, *size, {}, as_json);
    }
    if (const char* kind = other_picture(start)) {
        throw Error(ErrorKind::unsupported,
                    path.string() + ": is " + kind +
                        " picture, which flux2 does not read; convert it to PNG, JPEG or WebP");
    }
    if (is_adapter(path)) {
        return add_adapter(findings, path, as_json);
    }
    const std::vector<FileInfo> parts = add_file(findings, path, as_json);
    if (!as_json) {
        print_next(path, parts);
    }
}

// A file that cannot be read is reported; the other arguments are processed.
void add_argument(Findings& findings, const fs::path& path, bool as_json) {
    try {
        add_path(findings, path, as_json);
    } catch (const Error& error) {
        if (error.kind() != ErrorKind::bad_file && error.kind() != ErrorKind::unsupported) {
            throw;
        }
        findings.exit_code = exit_code(error.kind());
        const std::string message = error.message(option_of);
        findings.listed.push_back({{"path", path.string()}, {"error", message}});
        std::cout.flush();
        std::cerr << "flux2: " << message << std::endl;
    }
}

// Prints which parts fit each transformer; returns the reasons for those that do not.
nlohmann::json compare(const std::vector<FileInfo>& files, bool as_json) {
    nlohmann::json misfits = nlohmann::json::array();
    for (const FileInfo& transformer : files) {
        for (const FileInfo& other : files) {
            if (transformer.part != "transformer" || other.part == "transformer") {
                continue;
            }
            const auto reason = misfit(transformer, other);
            if (reason) {
                misfits.push_back({{"files", {transformer.path.string(), other.path.string()}},
                                   {"reason", *reason}});
            }
            if (!as_json) {
                std::cout << (reason ? "misfit: " + *reason
                                     : "fits: " + transformer.path.string() + " and " +
                                           other.path.string())
                          << "\n";
            }
        }
    }
    return misfits;
}

}  // namespace

int info(int argc, char** argv) {
    cxxopts::Options options(
        "flux2 info",
        "Says what model files, LoRAs and pictures are, and which files work together.\n");
    options.add_options()                                   //
        ("json", "print one JSON object instead of lines")  //
        ("files", "model files, LoRAs, folders to choose from, pictures",
         cxxopts::value<std::vector<std::string>>())  //
        ("h,help", "print this help");
    options.parse_positional("files");
    options.positional_help("FILE...");
    const auto args = parse_arguments(options, argc, argv);
    if (args.count("help") > 0) {
        std::cout << options.help();
        return 0;
    }
    if (args.count("files") == 0) {
        throw Error(ErrorKind::bad_argument, "nothing to look at; give model files or a folder");
    }
    const bool as_json = args.count("json") > 0;
    Findings findings;
    for (const std::string& path : args["files"].as<std::vector<std::string>>()) {
        add_argument(findings, path, as_json);
    }
    const nlohmann::json misfits = compare(findings.files, as_json);
    if (as_json) {
        const nlohmann::json all = {{"files", findings.listed}, {"misfits", misfits}};
        // A file name need not be UTF-8.
        std::cout << all.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) << "\n";
    }
    std::cout.flush();
    return findings.exit_code;
}

}  // namespace flux2::cli
