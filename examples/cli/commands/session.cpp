#include "commands/session.hpp"

#include "base/check.hpp"
#include "commands/generate.hpp"
#include "commands/session_settings.hpp"
#include "common/cancel.hpp"
#include "common/prompt_tags.hpp"
#include "common/setting_line.hpp"

#include <algorithm>
#include <iostream>
#include <new>
#include <optional>
#include <set>

namespace flux2::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* kHelp =
    "Type a prompt and press Enter. Settings are changed by key=value, several on a line:\n"
    "  width=512 height=512       pixels, multiples of 16; width= takes the default again\n"
    "  steps=4 guidance=4 seed=7  likewise\n"
    "  cfg_scale=3                guidance by two passes, on any model\n"
    "  cfg_interval=0,0.5         the share of the steps that have two passes\n"
    "  negative_prompt=\"a, b\"     for guidance by two passes\n"
    "  input_images=a.png,$1      references: files, and results of this session by number;\n"
    "                             style=a.png says what it is for (flux2 --help: roles)\n"
    "  match_image_size=0         take the size of a reference, the first is 0\n"
    "  init_img=$1 strength=0.6   a picture to start from, and how much to change it\n"
    "  mask=m.png                 repaint this part of it; mask=alpha: what is transparent in it\n"
    "                             mask_grow=4 mask_blur=8 inpaint_area=masked, as the options\n"
    "  outpaint=\"right=256\"       enlarge init_img and paint what is new\n"
    "  prompt=\"a house\" seed=7    sets the prompt as well, and draws\n"
    "A value goes on to the next setting; in quotes it may hold anything, and \\\" is a quote.\n"
    "LoRAs, for all pictures that follow; <lora:NAME:0.8> in a prompt is for one:\n"
    "  /lora FILE:0.8             use one, or change its strength\n"
    "  /lora                      list them\n"
    "  /lora remove 1             stop using the first; /lora clear: all\n"
    "Commands:\n"
    "  run                        draw the last prompt again, with the present settings\n"
    "  reset                      all settings as on the command line; reset width: this one\n"
    "  show, history              the settings; the results so far\n"
    "  help, quit\n";

constexpr const char* kLoraCommand = "/lora";
constexpr const char* kPromptKey = "prompt";

// The settings that a line can have.
std::set<std::string> line_keys() {
    std::set<std::string> keys = session_keys();
    keys.insert(kPromptKey);
    return keys;
}

// Each picture gets a unique name, with any pattern.
OutputNames name_pictures(const GenerateOptions& options, Display& display) {
    using Existing = OutputNames::Existing;
    OutputNames names(pattern_of_several(options.output),
                      options.overwrite ? Existing::replaced : Existing::kept);
    tell_first_number(names, display);
    return names;
}

class Session {
  public:
    Session(const GenerateOptions& options, Display& display)
        : options_(options),
          first_options_(options),
          display_(display),
          picture_maker_(options, name_pictures(options, display), display) {
        std::cout << picture_maker_.pipeline().model().name << " on "
                  << picture_maker_.pipeline().device() << ". Type a prompt, or help.\n";
    }

    // Returns false at the end.
    bool handle(const std::string& line) {
        if (line == "quit" || line == "exit") {
            return false;
        }
        if (line == "help") {
            std::cout << kHelp;
        } else if (line == "show") {
            show();
        } else if (line == "history") {
            history();
        } else if (line == kLoraCommand || line.starts_with(std::string(kLoraCommand) + " ")) {
            change_adapters(trimmed(line.substr(std::string(kLoraCommand).size())));
        } else if (line == "run") {
            check(!last_prompt_.empty(), ErrorKind::bad_argument,
                  "there is no prompt to draw again; type one");
            draw(last_prompt_);
        } else if (!line.empty() && !reset(line) && !set(line)) {
            draw(line);
        }
        return true;
    }

  private:
    struct Drawn {
        std::string prompt;
        fs::path file;
    };

    bool set(const std::string& line);
    bool reset(const std::string& line);
    void change_adapters(const std::string& what);
    void use_adapter(const std::string& what);
    void remove_adapter(const std::string& number);
    void show_adapters() const;
    void draw(const std::string& prompt);
    void show() const;
    void history() const;
    fs::path resolve_picture(const std::string& name) const;

    GenerateOptions options_;
    GenerateOptions first_options_;  // of the command line
    std::string last_prompt_;
    Display& display_;
    PictureMaker picture_maker_;
    std::vector<Drawn> drawn_;
};

// "$2" is the second result of this session.
fs::path Session::resolve_picture(const std::string& name) const {
    if (!name.starts_with("$")) {
        return name;
    }
    const int number = parse_int("$", name.substr(1));
    check(number >= 1 && static_cast<size_t>(number) <= drawn_.size(), ErrorKind::bad_argument,
          name, " is no result of this session; there are ", drawn_.size(), " so far");
    return drawn_[static_cast<size_t>(number) - 1].file;
}

// Takes a line of settings, all of them or none, and draws if the prompt is one. Returns false when
// the line is a prompt.
bool Session::set(const std::string& line) {
    const auto settings = parse_setting_line(line, line_keys());
    if (!settings) {
        return false;
    }
    GenerateOptions changed = options_;
    std::optional<std::string> prompt;
    for (const LineSetting& setting : *settings) {
        if (setting.key == kPromptKey) {
            prompt = setting.text();
            check(!prompt->empty(), ErrorKind::bad_argument,
                  "an empty prompt; write prompt=\"what to draw\"");
        } else {
            apply_setting(
                setting, [&](const std::string& name) { return resolve_picture(name); }, changed);
        }
    }
    options_ = changed;
    if (prompt) {
        draw(*prompt);
    }
    return true;
}

// Takes "reset" and "reset width height". Returns false when the line is a prompt.
bool Session::reset(const std::string& line) {
    std::vector<std::string> words = words_of(line);
    if (words.empty() || words.front() != "reset") {
        return false;
    }
    words.erase(words.begin());
    const bool only_keys = std::all_of(words.begin(), words.end(), [](const std::string& word) {
        return session_keys().contains(word);
    });
    if (!only_keys) {
        return false;
    }
    if (words.empty()) {
        options_ = first_options_;
    }
    for (const std::string& key : words) {
        copy_setting(key, first_options_, options_);
    }
    return true;
}

// Takes what follows /lora.
void Session::change_adapters(const std::string& what) {
    const std::string remove = "remove";
    if (what == "clear") {
        options_.request.adapters.clear();
    } else if (what == remove || what.starts_with(remove + " ")) {
        remove_adapter(trimmed(what.substr(remove.size())));
    } else if (!what.empty()) {
        use_adapter(what);
    }
    show_adapters();
}

void Session::use_adapter(const std::string& what) {
    Adapter adapter = parse_adapter(what);
    apply_filters(options_.adapter_filters, adapter);
    inspect_adapter(adapter.file);  // throws now if it cannot be used
    std::vector<Adapter>& adapters = options_.request.adapters;
    const auto same = std::find_if(adapters.begin(), adapters.end(),
                                   [&](const Adapter& used) { return used.file == adapter.file; });
    if (same != adapters.end()) {
        *same = adapter;
    } else {
        adapters.push_back(adapter);
    }
}

void Session::remove_adapter(const std::string& number) {
    std::vector<Adapter>& adapters = options_.request.adapters;
    const int which = parse_int("/lora remove", number);
    check(which >= 1 && static_cast<size_t>(which) <= adapters.size(), ErrorKind::bad_argument,
          "there is no LoRA number ", which, "; /lora lists the ", adapters.size(), " in use");
    adapters.erase(adapters.begin() + (which - 1));
}

void Session::show_adapters() const {
    const std::vector<Adapter>& adapters = options_.request.adapters;
    for (size_t i = 0; i < adapters.size(); ++i) {
        std::cout << "LoRA " << i + 1 << ": " << adapters[i].file.string() << ":"
                  << adapters[i].strength << "\n";
    }
    if (adapters.empty()) {
        std::cout << "no LoRA is in use\n";
    }
}

void Session::draw(const std::string& prompt) {
    last_prompt_ = prompt;
    const std::vector<AdaptedPrompt> resolved = resolve_tags({prompt}, options_);
    for (const fs::path& file : picture_maker_.draw(options_, make_request(options_), resolved)) {
        drawn_.push_back({prompt, file});
        std::cout << "$" << drawn_.size() << " = " << file.string() << std::endl;
    }
}

void Session::show() const {
    std::cout << describe_settings(options_);
    show_adapters();
}

void Session::history() const {
    for (size_t i = 0; i < drawn_.size(); ++i) {
        std::cout << "$" << i + 1 << "  " << drawn_[i].file.string() << "  " << drawn_[i].prompt
                  << "\n";
    }
}

bool read_line(std::string& line) {
    const EndsAtOnce while_waiting;
    cancel_requested = false;  // Ctrl-C cancels the picture, not the session
    std::cout << "> " << std::flush;
    return static_cast<bool>(std::getline(std::cin, line));
}

}  // namespace

int run_session(const GenerateOptions& options, Display& display) {
    make_request(options);  // reports unreadable pictures before the model is opened
    GenerateOptions kept = options;
    kept.model.load.keep_loaded = true;
    Session session(kept, display);
    for (std::string line; read_line(line);) {
        try {
            if (!session.handle(trimmed(line))) {
                break;
            }
        } catch (const Error& error) {
            std::cerr << "flux2: " << error.message(option_of) << std::endl;
        } catch (const std::bad_alloc&) {
            std::cerr << "flux2: out of memory; close other programs" << std::endl;
        }
    }
    return 0;
}

}  // namespace flux2::cli
