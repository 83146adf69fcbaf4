#include "http/request_fields.hpp"

#include "base/check.hpp"
#include "base/utf8.hpp"

#include <algorithm>
#include <cmath>

namespace flux2::server {
namespace {

using nlohmann::json;

constexpr int kMaxDepth = 32;
constexpr uint64_t kMaxSeed = 9'999'999'999'999'999'999u;
constexpr size_t kShownValue = 40;  // bytes of a wrong value in a message

// A value as messages show it.
std::string shown(const json& value) {
    const std::string text = to_text(value);
    return text.size() <= kShownValue ? text : concat(utf8_start(text, kShownValue), "...");
}

template <typename... Values>
[[noreturn]] void refuse(const Field& field, const json& value, const Values&... expected) {
    throw FieldError(field.name,
                     concat(field.name, " is ", shown(value), ", expected ", expected...));
}

void check_number(const Field& field, const json& value) {
    const bool whole = field.kind == FieldKind::integer;
    const double number = value.is_number() ? value.get<double>() : std::nan("");
    if (!(number >= field.least && number <= field.most) ||
        (whole && number != std::floor(number))) {
        refuse(field, value, whole ? "a whole number from " : "a number from ", field.least, " to ",
               field.most);
    }
}

void check_seed(const Field& field, const json& value) {
    const bool random = value.is_number_integer() && value == -1;
    if (!random && !(value.is_number_unsigned() && value.get<uint64_t>() <= kMaxSeed)) {
        refuse(field, value, "a whole number from 0 to ", kMaxSeed, ", or -1 for a random one");
    }
}

void check_word(const Field& field, const json& value) {
    std::string words;
    for (const char* word : field.words) {
        if (value == word) {
            return;
        }
        words += (words.empty() ? "" : ", ") + std::string(word);
    }
    refuse(field, value, "one of: ", words);
}

void check_list(const Field& field, const json& value, bool (json::*is_right)() const,
                const char* what) {
    const bool right =
        value.is_array() && std::all_of(value.begin(), value.end(),
                                        [&](const json& item) { return (item.*is_right)(); });
    if (!right) {
        refuse(field, value, "a list of ", what);
    }
}

void check_value(const Field& field, const json& value) {
    switch (field.kind) {
        case FieldKind::text:
            if (!value.is_string()) {
                refuse(field, value, "a text");
            }
            if (field.most > 0 &&
                static_cast<double>(value.get_ref<const std::string&>().size()) > field.most) {
                throw FieldError(field.name, concat(field.name, " has ",
                                                    value.get_ref<const std::string&>().size(),
                                                    " bytes, at most ", field.most, " are read"));
            }
            return;
        case FieldKind::integer:
        case FieldKind::number:
            return check_number(field, value);
        case FieldKind::boolean:
            if (!value.is_boolean()) {
                refuse(field, value, "true or false");
            }
            return;
        case FieldKind::word:
            return check_word(field, value);
        case FieldKind::seed:
            return check_seed(field, value);
        case FieldKind::numbers:
            return check_list(field, value, &json::is_number, "numbers");
        case FieldKind::texts:
            return check_list(field, value, &json::is_string, "texts");
        case FieldKind::objects:
            if (!value.is_array() && !value.is_string()) {
                refuse(field, value, "a list");
            }
            return;
        case FieldKind::pictures:
            if (!value.is_array() && !value.is_string() && !value.is_object()) {
                refuse(field, value, "a picture: a data URL, or a list of them");
            }
            return;
    }
}

// The string of a form as a value of the field's type; unchanged when it is none.
json from_string(const Field& field, const std::string& text) {
    const bool is_list = field.kind == FieldKind::numbers || field.kind == FieldKind::texts ||
                         field.kind == FieldKind::objects;
    const bool is_scalar = field.kind == FieldKind::integer || field.kind == FieldKind::number ||
                           field.kind == FieldKind::boolean || field.kind == FieldKind::seed;
    json value = is_list || is_scalar ? json::parse(text, nullptr, false) : json();
    return (is_list && value.is_array()) || value.is_number() || value.is_boolean() ? value
                                                                                    : json(text);
}

const json& null_value() {
    static const json null;
    return null;
}

}  // namespace

json parse_body(std::string_view text) {
    bool too_deep = false;
    const json::parser_callback_t watch = [&](int depth, json::parse_event_t, json&) {
        too_deep = too_deep || depth > kMaxDepth;
        return !too_deep;
    };
    try {
        json body = json::parse(text, watch);
        if (!too_deep) {
            return body;
        }
    } catch (const json::parse_error& error) {
        throw StatusError(400, "invalid_json",
                          concat("the body is not valid JSON: an error at byte ", error.byte,
                                 " of ", text.size()));
    } catch (const json::out_of_range&) {
        throw StatusError(400, "invalid_json", "the body has a number that is too large");
    }
    throw StatusError(400, "invalid_json",
                      concat("the body is nested more than ", kMaxDepth, " levels deep"));
}

RequestFields RequestFields::from_json(const FieldTable& table, json body) {
    if (!body.is_object()) {
        throw StatusError(400, "invalid_json",
                          "the body is no JSON object; send {\"prompt\": \"...\"}");
    }
    RequestFields fields;
    for (const Field& field : table) {
        const auto found = body.find(field.name);
        if (found != body.end() && !found->is_null()) {
            check_value(field, *found);
            fields.values_[field.name] = std::move(*found);
        } else if (field.required) {
            throw FieldError(field.name, concat(field.name, " is missing; ", field.sentence));
        }
    }
    return fields;
}

RequestFields RequestFields::from_form(const FieldTable& table,
                                       const httplib::MultipartFormData& form) {
    json body = json::object();
    for (const Field& field : table) {
        if (form.has_field(field.name)) {
            body[field.name] = from_string(field, form.get_field(field.name));
        }
    }
    return from_json(table, std::move(body));
}

RequestFields RequestFields::from_query(const FieldTable& table, const httplib::Params& params) {
    json body = json::object();
    for (const Field& field : table) {
        if (const auto found = params.find(field.name); found != params.end()) {
            body[field.name] = from_string(field, found->second);
        }
    }
    return from_json(table, std::move(body));
}

RequestFields RequestFields::read(const FieldTable& table, const httplib::Request& request) {
    return request.is_multipart_form_data() ? from_form(table, request.form)
                                            : from_json(table, parse_body(request.body));
}

bool RequestFields::has(const char* name) const {
    return values_.contains(name);
}

const json& RequestFields::value(const char* name) const {
    const auto found = values_.find(name);
    return found == values_.end() ? null_value() : *found;
}

std::string RequestFields::text(const char* name, const std::string& otherwise) const {
    return has(name) ? value(name).get<std::string>() : otherwise;
}

std::optional<int> RequestFields::integer(const char* name) const {
    return has(name) ? std::optional(static_cast<int>(value(name).get<double>())) : std::nullopt;
}

std::optional<float> RequestFields::number(const char* name) const {
    return has(name) ? std::optional(value(name).get<float>()) : std::nullopt;
}

bool RequestFields::boolean(const char* name, bool otherwise) const {
    return has(name) ? value(name).get<bool>() : otherwise;
}

std::optional<uint64_t> RequestFields::seed(const char* name) const {
    return has(name) && value(name) != -1 ? std::optional(value(name).get<uint64_t>())
                                          : std::nullopt;
}

std::vector<float> RequestFields::numbers(const char* name) const {
    return has(name) ? value(name).get<std::vector<float>>() : std::vector<float>();
}

std::vector<std::string> RequestFields::texts(const char* name) const {
    return has(name) ? value(name).get<std::vector<std::string>>() : std::vector<std::string>();
}

namespace {

json type_of(const Field& field) {
    switch (field.kind) {
        case FieldKind::integer:
            return {{"type", "integer"}, {"minimum", field.least}, {"maximum", field.most}};
        case FieldKind::number:
            return {{"type", "number"}, {"minimum", field.least}, {"maximum", field.most}};
        case FieldKind::boolean:
            return {{"type", "boolean"}};
        case FieldKind::word:
            return {{"type", "string"}, {"enum", field.words}};
        case FieldKind::seed:
            return {{"type", "integer"}, {"minimum", -1}};
        case FieldKind::pictures:
            return {{"oneOf",
                     {{{"type", "string"}, {"format", "uri"}},
                      {{"type", "object"}},
                      {{"type", "array"}, {"items", {{"type", {"string", "object"}}}}}}}};
        case FieldKind::numbers:
            return {{"type", "array"}, {"items", {{"type", "number"}}}};
        case FieldKind::texts:
            return {{"type", "array"}, {"items", {{"type", "string"}}}};
        case FieldKind::objects:
            return {{"type", "array"}, {"items", {{"type", {"string", "object"}}}}};
        case FieldKind::text:
            break;
    }
    json type = {{"type", "string"}};
    if (field.most > 0) {
        type["maxLength"] = field.most;
    }
    return type;
}

}  // namespace

json schema_of(const FieldTable& table) {
    json properties = json::object();
    json required = json::array();
    for (const Field& field : table) {
        properties[field.name] = type_of(field);
        properties[field.name]["description"] = field.sentence;
        if (field.required) {
            required.push_back(field.name);
        }
    }
    json schema = {{"type", "object"}, {"properties", properties}};
    if (!required.empty()) {
        schema["required"] = required;
    }
    return schema;
}

FieldTable joined(FieldTable table, const FieldTable& more) {
    table.insert(table.end(), more.begin(), more.end());
    return table;
}

}  // namespace flux2::server
