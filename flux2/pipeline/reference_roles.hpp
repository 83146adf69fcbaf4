// Sentences that tell the model what reference pictures are for.
#pragma once

#include <flux2/flux2.hpp>

#include <string>

namespace flux2 {

// The prompt, followed by the sentences for the request's references; a full stop ends a prompt
// whose last character is a letter or digit of ASCII. Numbers in them count the pictures as the
// model gets them: from 1 on, or from 2 when the picture to start from is the first one. Throws
// bad_argument for a word that is no role, and unless there is a role for each reference or for
// none.
std::string with_reference_sentences(const std::string& prompt, const Request& request);

}  // namespace flux2
