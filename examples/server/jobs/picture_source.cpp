#include "jobs/picture_source.hpp"

#include "base/check.hpp"
#include "common/picture_facts.hpp"

namespace flux2::server {
namespace {

// The options under which the command line would have made this request.
cli::GenerateOptions options_of(const LoadOptions& load, const Request& request) {
    cli::GenerateOptions options;
    options.model.load.type = load.type;
    options.model.load.device = load.device;
    options.model.load.split = load.split;
    options.model.load.transformer = load.transformer;
    options.model.load.text_encoder = load.text_encoder;
    options.model.load.vae = load.vae;
    for (size_t i = 0; i < request.references.size(); ++i) {
        options.references.emplace_back(concat("(uploaded reference ", i + 1, ")"));
    }
    if (request.init) {
        options.init = "(uploaded picture)";
        options.strength = request.init->strength;
    }
    if (request.inpaint) {
        options.edit.mask = "(uploaded mask)";
        options.edit.inpaint = *request.inpaint;
    }
    options.edit.outpaint = request.outpaint;
    return options;
}

}  // namespace

nlohmann::json facts_of(const ModelEntry& model, const LoadOptions& load, const Pipeline& pipeline,
                        const Request& request, const Result& result) {
    for (const Adapter& adapter : request.adapters) {
        model.hashes->add(adapter.file);
    }
    nlohmann::json facts = cli::picture_facts(options_of(load, request), model.files, *model.hashes,
                                              pipeline, request, result, cli::FileNames::names);
    facts["model"]["id"] = model.name;
    return facts;
}

}  // namespace flux2::server
