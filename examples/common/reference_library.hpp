// A folder of named reference pictures, which prompts use as @name (docs/references.md).
#pragma once

#include "common/reference_options.hpp"

#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace flux2::cli {

// NAME.png, NAME.jpg, NAME.jpeg or NAME.webp, and what NAME.json beside it says.
struct LibraryElement {
    std::filesystem::path picture;
    std::string text;     // replaces @NAME in a prompt: its trigger words, else its name in words
    std::string role;     // as in Request::reference_roles; may mention other elements
    std::string trigger;  // "red robot, r0b0t"; empty: none
    std::string description;

    // What its role says to the model.
    std::string sentence() const;
};

class ReferenceLibrary {
  public:
    // Lists the folder. Throws bad_file when it cannot be read.
    explicit ReferenceLibrary(std::filesystem::path folder);

    std::vector<std::string> names() const;
    // Throws bad_argument, with the closest names, when there is none; bad_file for a description
    // that is broken and for two pictures of one name.
    LibraryElement find(const std::string& name) const;
    // A line for each file that looks like one of an element, but is none.
    const std::vector<std::string>& strays() const { return strays_; }

  private:
    std::filesystem::path folder_;
    std::map<std::string, std::vector<std::filesystem::path>> pictures_;  // by name
    std::vector<std::string> strays_;
};

struct ExpandedPrompt {
    std::string text;
    std::vector<ReferenceFile> references;  // each element once, in the order they are mentioned
};

// Replaces each @name by the element's text; an element that the sentence of another mentions
// follows that one. An @ within a word, as in an e-mail address, and one without a name stay.
// Throws bad_argument when elements mention each other in a circle, when they are more than a
// picture takes, and as ReferenceLibrary::find.
ExpandedPrompt expand_elements(const std::string& prompt, const ReferenceLibrary& library);

}  // namespace flux2::cli
