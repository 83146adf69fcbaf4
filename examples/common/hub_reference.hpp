// "owner/name:TYPE or FILE" as files of a repository.
#pragma once

#include "downloads/hub_client.hpp"

#include <string>
#include <vector>

namespace flux2::cli {

struct HubReference {
    std::string repository;
    std::string what;  // a type or a file; empty: the usual one
};

// Throws bad_argument unless it is "owner/name" with or without ":what".
HubReference parse_hub_reference(const std::string& text);

// The model file that is meant, among the names of a repository's files: the file itself, one whose
// name has the type in it, else Q4_K_M, else the first GGUF, else the first safetensors. Throws
// bad_file when there is none, or when several have the type.
std::string choose_hub_file(const HubReference& reference, const std::vector<std::string>& names);

// The other files that a model file needs: its parts ("-00001-of-00003"), the index of shards, and
// beside a text encoder in safetensors its tokenizer and config.
std::vector<std::string> companions_of(const std::string& file,
                                       const std::vector<std::string>& names);

}  // namespace flux2::cli
