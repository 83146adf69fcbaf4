// A1111's API over a real connection: the requests of its clients, and masks by their pixels.
#include <flux2/flux2.hpp>
#include "dialects/picture_fit.hpp"
#include "http/base64.hpp"
#include "support/folders.hpp"
#include "support/png_builder.hpp"
#include "support/running_server.hpp"
#include "support/support.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <future>
#include <thread>

using namespace flux2;
using namespace flux2::test;
using nlohmann::json;

namespace {

Image decoded_picture(const json& text) {
    const auto bytes = server::from_base64(text.get<std::string>());
    REQUIRE(bytes.has_value());
    return decode_image(std::as_bytes(std::span(*bytes)));
}

std::string base64_of(const Image& image, ImageFormat format = ImageFormat::png) {
    const std::vector<std::byte> bytes = encode_image(image, format);
    return server::to_base64({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

json info_of(const json& body) {
    REQUIRE(body.at("info").is_string());
    return json::parse(body.at("info").get<std::string>());
}

// What the library makes with the model's own settings, except those that are set here.
Image library_picture(const Request& request) {
    LoadOptions options;
    options.device = "CPU";
    Pipeline pipeline = Pipeline::load(find_model(test::tiny_model()).files, options);
    return pipeline.generate(request).image;
}

Request small_request(const std::string& prompt, uint64_t seed) {
    Request request;
    request.prompt = prompt;
    request.width = request.height = 64;
    request.seed = seed;
    return request;
}

json with(json body, const json& more) {
    body.update(more);
    return body;
}

// Colours that change slowly, so that repainting changes most pixels.
Image gradient(int width, int height) {
    Image image{width, height, {}};
    for (int y = 0; y < height; ++y) {
        for (int x = 0; x < width; ++x) {
            for (const int value : {255 * x / width, 255 * y / height, 90}) {
                image.rgb.push_back(static_cast<uint8_t>(value));
            }
        }
    }
    return image;
}

// White where x is in [from, until), else black.
Image stripe(int width, int height, int from, int until) {
    Image image{width, height, {}};
    for (int i = 0; i < width * height; ++i) {
        const bool white = i % width >= from && i % width < until;
        image.rgb.insert(image.rgb.end(), 3, white ? 255 : 0);
    }
    return image;
}

// How many pixels of the columns in [from, until) differ.
int n_changed(const Image& a, const Image& b, int from, int until) {
    REQUIRE(a.width == b.width);
    REQUIRE(a.height == b.height);
    int n = 0;
    for (int y = 0; y < a.height; ++y) {
        for (int x = from; x < until; ++x) {
            const auto at = static_cast<size_t>(3 * (y * a.width + x));
            n += std::equal(a.rgb.begin() + static_cast<std::ptrdiff_t>(at),
                            a.rgb.begin() + static_cast<std::ptrdiff_t>(at) + 3,
                            b.rgb.begin() + static_cast<std::ptrdiff_t>(at))
                     ? 0
                     : 1;
        }
    }
    return n;
}

}  // namespace

TEST_CASE("LibreChat's fixed steps and cfg are left out for a distilled model, and info says so") {
    TestServer server;
    // Its size is 1024 x 1024, which takes the bundled model half a minute.
    const auto answer = server.post("/sdapi/v1/txt2img", {{"prompt", "a red house"},
                                                          {"negative_prompt", "blurry"},
                                                          {"cfg_scale", 4.5},
                                                          {"steps", 22},
                                                          {"width", 128},
                                                          {"height", 128}});
    REQUIRE(answer.status == 200);
    REQUIRE(answer.body["images"].size() == 1);
    const json info = info_of(answer.body);
    CHECK(info["width"] == 128);
    CHECK(info["height"] == 128);
    CHECK(info["steps"] == 4);
    CHECK(info["cfg_scale"] == 1);
    CHECK(info["extra_generation_params"]["Ignored"].get<std::string>().find(
              "steps 22, cfg_scale 4.5") == 0);
    REQUIRE(info["infotexts"].size() == 1);
    CHECK(info["infotexts"][0].get<std::string>().find("a red house\nNegative prompt: blurry") ==
          0);
    CHECK(info["all_seeds"] == json::array({info["seed"]}));
    Request request = small_request("a red house", info["seed"].get<uint64_t>());
    request.width = request.height = 128;
    CHECK(decoded_picture(answer.body["images"][0]).rgb == library_picture(request).rgb);
    CHECK(answer.body["parameters"]["steps"] == 22);
}

TEST_CASE("with respect_client_steps the steps of a client are used") {
    auto options = test_options();
    options.respect_client_steps = true;
    TestServer server(options);
    const auto answer = server.post(
        "/sdapi/v1/txt2img",
        {{"prompt", "a boat"}, {"width", 64}, {"height", 64}, {"steps", 2}, {"seed", 3}});
    REQUIRE(answer.status == 200);
    CHECK(info_of(answer.body)["steps"] == 2);
    CHECK(info_of(answer.body)["extra_generation_params"].empty());
    Request request = small_request("a boat", 3);
    request.steps = 2;
    CHECK(decoded_picture(answer.body["images"][0]).rgb == library_picture(request).rgb);
}

TEST_CASE("Open WebUI finds the model, chooses it and gets its pictures") {
    TestServer server;
    httplib::Client client = server.client();
    client.set_default_headers({{"Authorization", ""}});  // as it sends without a key
    const auto options = client.Get("/sdapi/v1/options");
    REQUIRE(options);
    CHECK(options->status == 200);
    CHECK(json::parse(options->body)["sd_model_checkpoint"] == "tiny");
    const json models = server.get("/sdapi/v1/sd-models").body;
    REQUIRE(models.size() == 1);
    CHECK(models[0]["title"] == "tiny");
    CHECK(models[0]["model_name"] == "tiny");
    CHECK(models[0].contains("hash"));

    json all = json::parse(options->body);
    all["sd_model_checkpoint"] = models[0]["title"];
    CHECK(server.post("/sdapi/v1/options", all).status == 200);
    const auto answer = server.post("/sdapi/v1/txt2img", {{"prompt", "a tree"},
                                                          {"batch_size", 2},
                                                          {"width", 64},
                                                          {"height", 64},
                                                          {"negative_prompt", "text"}});
    REQUIRE(answer.status == 200);
    CHECK(answer.body["images"].size() == 2);
    CHECK(answer.body["info"].is_string());
}

TEST_CASE("SillyTavern's lists, its wait for a model and its request work") {
    TestServer server;
    CHECK_FALSE(server.get("/sdapi/v1/options").body.contains("forge_preset"));
    for (const char* path : {"samplers", "schedulers", "upscalers", "sd-models", "sd-vae",
                             "sd-modules", "latent-upscale-modes", "loras"}) {
        CAPTURE(path);
        const auto list = server.get(std::string("/sdapi/v1/") + path);
        CHECK(list.status == 200);
        CHECK(list.body.is_array());
    }
    CHECK(server.get("/sdapi/v1/samplers").body[0]["name"] == "Euler");
    CHECK(server.get("/sdapi/v1/schedulers").body[0].contains("label"));
    CHECK(server.get("/sdapi/v1/sd-vae").body[0].contains("model_name"));
    CHECK(server.get("/sdapi/v1/sd-modules").body[0].contains("model_name"));
    CHECK(server.post("/sdapi/v1/options", {{"sd_model_checkpoint", "tiny [75b1cbb5f3]"}}).status ==
          200);
    const json progress = server.get("/sdapi/v1/progress").body;
    CHECK(progress["progress"] == 0);
    CHECK(progress["state"]["job_count"] == 0);

    const auto answer =
        server.post("/sdapi/v1/txt2img", {{"prompt", "a castle"},
                                          {"negative_prompt", ""},
                                          {"sampler_name", "Euler a"},
                                          {"scheduler", "Automatic"},
                                          {"steps", 20},
                                          {"cfg_scale", 7},
                                          {"width", 64},
                                          {"height", 64},
                                          {"restore_faces", false},
                                          {"enable_hr", false},
                                          {"hr_upscaler", "Latent"},
                                          {"hr_scale", 1.5},
                                          {"hr_additional_modules", json::array()},
                                          {"denoising_strength", 0.7},
                                          {"hr_second_pass_steps", 0},
                                          {"seed", 7},
                                          {"override_settings",
                                           {{"CLIP_stop_at_last_layers", 1},
                                            {"sd_vae", "Automatic"},
                                            {"forge_additional_modules", {}}}},
                                          {"override_settings_restore_afterwards", true},
                                          {"clip_skip", 1},
                                          {"save_images", true},
                                          {"send_images", true},
                                          {"do_not_save_grid", false},
                                          {"do_not_save_samples", false}});
    REQUIRE(answer.status == 200);
    CHECK(decoded_picture(answer.body["images"][0]).rgb ==
          library_picture(small_request("a castle", 7)).rgb);
}

TEST_CASE("SillyTavern's clients for stable-diffusion.cpp and Draw Things are served") {
    TestServer server;
    httplib::Client client = server.client();
    const auto ping = client.Options("/v1/images/generations");
    REQUIRE(ping);
    CHECK(ping->status / 100 == 2);
    const std::string model = server.get("/v1/models").body["data"][0]["id"];
    const auto answer = server.post("/sdapi/v1/txt2img", {{"model", model},
                                                          {"prompt", "a ship"},
                                                          {"negative_prompt", ""},
                                                          {"width", 64},
                                                          {"height", 64},
                                                          {"steps", 20},
                                                          {"cfg_scale", 7},
                                                          {"seed", -1},
                                                          {"batch_size", 1},
                                                          {"sampler_name", "euler_a"},
                                                          {"scheduler", "discrete"},
                                                          {"clip_skip", -1}});
    CHECK(answer.status == 200);

    const auto head = client.Head("/");
    REQUIRE(head);
    CHECK(head->status == 200);
    CHECK(server.get("/").body["model"] == "tiny");
}

TEST_CASE(
    "seeds count up over batches, numbers may be strings, and sizes are rounded to what the model "
    "draws") {
    TestServer server;
    const auto answer = server.post("/sdapi/v1/txt2img", {{"prompt", "a hill"},
                                                          {"width", "72"},
                                                          {"height", 64},
                                                          {"seed", "5"},
                                                          {"batch_size", 2},
                                                          {"n_iter", 2}});
    REQUIRE(answer.status == 200);
    const json info = info_of(answer.body);
    CHECK(info["all_seeds"] == json({5, 6, 7, 8}));
    REQUIRE(answer.body["images"].size() == 4);
    Request request = small_request("a hill", 8);
    request.width = info["width"].get<int>();
    CHECK(*request.width % 16 == 0);
    CHECK(decoded_picture(answer.body["images"][3]).rgb == library_picture(request).rgb);

    const auto without =
        server.post("/sdapi/v1/txt2img",
                    {{"prompt", "x"}, {"width", 64}, {"height", 64}, {"send_images", false}});
    CHECK(without.body["images"].empty());
}

TEST_CASE("white of a mask is repainted, everything else keeps its bytes") {
    TestServer server;  // one for all: each would prepare its previews
    const Image picture = gradient(64, 64);
    const json body = {
        {"prompt", "a red house"},   {"seed", 1},     {"init_images", {base64_of(picture)}},
        {"denoising_strength", 1},   {"width", 64},   {"height", 64},
        {"inpaint_full_res", false}, {"mask_blur", 0}};
    const auto repaint = [&](const json& more) {
        const auto answer = server.post("/sdapi/v1/img2img", with(body, more));
        REQUIRE_MESSAGE(answer.status == 200, answer.body.dump());
        return decoded_picture(answer.body["images"][0]);
    };
    const std::string left = base64_of(stripe(64, 64, 0, 32));
    {
        INFO("white");
        const Image result = repaint({{"mask", left}});
        CHECK(n_changed(result, picture, 32, 64) == 0);
        CHECK(n_changed(result, picture, 0, 32) > 1000);
    }
    {
        INFO("in a data URL, inverted, as a number and as a flag");
        for (const json& yes : {json(1), json(true)}) {
            const Image result = repaint(
                {{"mask", "data:image/png;base64," + left}, {"inpainting_mask_invert", yes}});
            CHECK(n_changed(result, picture, 0, 32) == 0);
            CHECK(n_changed(result, picture, 32, 64) > 1000);
        }
    }
    {
        INFO("blurred, which reaches a little beyond the edge");
        const Image result = repaint({{"mask", left}, {"mask_blur", 4}});
        CHECK(n_changed(result, picture, 32 + 8, 64) == 0);
        CHECK(n_changed(result, picture, 32, 32 + 8) > 0);
    }
    {
        INFO("of another size than the picture");
        const Image result = repaint({{"mask", base64_of(stripe(32, 32, 0, 16))}});
        CHECK(n_changed(result, picture, 34, 64) == 0);
        CHECK(n_changed(result, picture, 0, 30) > 1000);
    }
    {
        INFO("with transparency: what is opaque, whatever its colour");
        Bytes rows;
        for (int y = 0; y < 64; ++y) {
            rows.push_back(std::byte{0});
            for (int x = 0; x < 64; ++x) {
                rows.insert(rows.end(), {std::byte{0}, x < 32 ? std::byte{255} : std::byte{0}});
            }
        }
        const Bytes mask = png(64, 64, 8, grey_alpha, rows);
        const Image result = repaint(
            {{"mask",
              server::to_base64({reinterpret_cast<const char*>(mask.data()), mask.size()})}});
        CHECK(n_changed(result, picture, 32, 64) == 0);
        CHECK(n_changed(result, picture, 0, 32) > 1000);
    }
    {
        INFO("dark grey counts as black");
        Image grey = stripe(64, 64, 0, 32);
        for (uint8_t& value : grey.rgb) {
            value = value == 0 ? 120 : value;
        }
        CHECK(n_changed(repaint({{"mask", base64_of(grey)}}), picture, 32, 64) == 0);
    }
}

TEST_CASE("a picture with a profile comes back with it, and with the bytes that the mask keeps" *
          doctest::skip(!supports_profiles())) {
    TestServer server;
    Image picture = gradient(64, 64);
    picture.profile = load_image_with_profile(fixture("colour/p3.png")).profile;
    REQUIRE_FALSE(picture.profile.empty());
    const auto answer =
        server.post("/sdapi/v1/img2img", {{"prompt", "a red house"},
                                          {"seed", 1},
                                          {"init_images", {base64_of(picture)}},
                                          {"mask", base64_of(stripe(64, 64, 0, 32))},
                                          {"denoising_strength", 1},
                                          {"width", 64},
                                          {"height", 64},
                                          {"inpaint_full_res", false},
                                          {"mask_blur", 0}});
    REQUIRE_MESSAGE(answer.status == 200, answer.body.dump());
    const std::string file =
        server::from_base64(answer.body["images"][0].get<std::string>()).value();
    const Image result = decode_image_with_profile(std::as_bytes(std::span(file)));
    CHECK(result.profile == picture.profile);
    CHECK(n_changed(result, picture, 32, 64) == 0);
    CHECK(n_changed(result, picture, 0, 32) > 1000);
}

TEST_CASE("only the masked region is drawn at the request's size, and the picture keeps its own") {
    TestServer server;
    const Image picture = gradient(160, 96);
    const auto answer =
        server.post("/sdapi/v1/img2img", {{"prompt", "a red house"},
                                          {"seed", 1},
                                          {"init_images", {base64_of(picture, ImageFormat::bmp)}}});
    CHECK(answer.status == 400);  // A BMP is not read.
    const json body = {{"prompt", "a red house"},
                       {"seed", 1},
                       {"init_images", {base64_of(picture)}},
                       {"mask", base64_of(stripe(160, 96, 40, 80))},
                       {"mask_blur", 0},
                       {"denoising_strength", 1},
                       {"width", 64},
                       {"height", 64},
                       {"inpaint_full_res_padding", 8}};
    const auto masked = server.post("/sdapi/v1/img2img", body);
    REQUIRE(masked.status == 200);
    const Image result = decoded_picture(masked.body["images"][0]);
    CHECK(result.width == 160);
    CHECK(n_changed(result, picture, 0, 40) == 0);
    CHECK(n_changed(result, picture, 80, 160) == 0);
    CHECK(n_changed(result, picture, 40, 80) > 2000);
    // The whole picture is brought to the size first.
    const auto whole = server.post("/sdapi/v1/img2img", with(body, {{"inpaint_full_res", false}}));
    REQUIRE(whole.status == 200);
    CHECK(decoded_picture(whole.body["images"][0]).width == 64);
    CHECK(decoded_picture(whole.body["images"][0]).height == 64);
    CHECK(masked.body["parameters"]["init_images"].is_null());
}

TEST_CASE("img2img starts from the picture as the library does") {
    TestServer server;
    const Image picture = gradient(64, 64);
    const auto answer = server.post("/sdapi/v1/img2img", {{"prompt", "a boat"},
                                                          {"seed", 4},
                                                          {"init_images", {base64_of(picture)}},
                                                          {"denoising_strength", 0.5}});
    REQUIRE(answer.status == 200);
    Request request = small_request("a boat", 4);
    request.init = InitImage{picture, 0.5f};
    CHECK(decoded_picture(answer.body["images"][0]).rgb == library_picture(request).rgb);
    CHECK(info_of(answer.body)["denoising_strength"] == 0.5);
}

TEST_CASE("png-info reads what an answer's picture stores") {
    TestServer server;
    const auto made = server.post(
        "/sdapi/v1/txt2img", {{"prompt", "a lake"}, {"width", 64}, {"height", 64}, {"seed", 9}});
    REQUIRE(made.status == 200);
    const auto answer = server.post("/sdapi/v1/png-info", {{"image", made.body["images"][0]}});
    REQUIRE(answer.status == 200);
    CHECK(answer.body["info"] == info_of(made.body)["infotexts"][0]);
    CHECK(answer.body["parameters"]["Prompt"] == "a lake");
    CHECK(answer.body["parameters"]["Seed"] == "9");
    CHECK(answer.body["parameters"]["Size-1"] == "64");
    CHECK(answer.body["items"].contains("flux2"));
    const auto broken = server.post("/sdapi/v1/png-info", {{"image", "AAAA"}});
    CHECK(broken.status == 400);
}

namespace {

// Waits until `reached` is true for the server's progress.
json wait_for_progress(const TestServer& server, const std::function<bool(const json&)>& reached) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(2);
    while (std::chrono::steady_clock::now() < end) {
        const json progress = server.get("/sdapi/v1/progress").body;
        if (reached(progress)) {
            return progress;
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    FAIL("the progress was not reached in two minutes");
    return {};
}

}  // namespace

TEST_CASE("progress shows the picture so far; skip and interrupt end batches and are answered") {
    auto options = test_options();
    options.respect_client_steps = true;
    TestServer server(options);
    const auto request = [&](int steps, int n_iter) {
        return std::async(std::launch::async, [&server, steps, n_iter] {
            return server.client().Post("/sdapi/v1/txt2img",
                                        json{{"prompt", "a house"},
                                             {"width", 64},
                                             {"height", 64},
                                             {"steps", steps},
                                             {"n_iter", n_iter}}
                                            .dump(),
                                        "application/json");
        });
    };
    const auto images_of = [](std::future<httplib::Result>& answer) {
        const httplib::Result result = answer.get();
        REQUIRE(result);
        REQUIRE(result->status == 200);
        return json::parse(result->body)["images"].size();
    };
    SUBCASE("a batch is skipped, then all is interrupted") {
        auto answer = request(1000, 3);
        const json progress = wait_for_progress(server, [](const json& now) {
            return now["state"]["sampling_step"] > 1 && !now["current_image"].is_null();
        });
        CHECK(progress["progress"] > 0);
        CHECK(progress["progress"] < 0.4);
        CHECK(progress["eta_relative"] > 0);
        CHECK(progress["state"]["sampling_steps"] == 1000);
        CHECK(progress["state"]["job_count"] == 3);
        CHECK(progress["state"]["job_no"] == 0);
        CHECK(decoded_picture(progress["current_image"]).width > 0);
        CHECK(server.get("/sdapi/v1/progress?skip_current_image=true")
                  .body["current_image"]
                  .is_null());
        CHECK(server.post("/sdapi/v1/skip", json::object()).body == json::object());
        wait_for_progress(server, [](const json& now) { return now["state"]["job_no"] == 1; });
        CHECK(server.post("/sdapi/v1/interrupt", json::object()).body == json::object());
        CHECK(images_of(answer) == 0);
    }
    SUBCASE("what is finished before an interruption is answered") {
        auto answer = request(100, 30);
        wait_for_progress(server, [](const json& now) { return now["state"]["job_no"] == 1; });
        server.post("/sdapi/v1/interrupt", json::object());
        CHECK(images_of(answer) >= 1);
    }
    CHECK(server.get("/sdapi/v1/progress").body["state"]["job_count"] == 0);
    // Nothing is under way: both are answered all the same.
    CHECK(server.post("/sdapi/v1/interrupt", json::object()).status == 200);
    CHECK(server.post("/sdapi/v1/skip", json::object()).status == 200);
}

TEST_CASE("wrong requests are refused in A1111's form, naming the field") {
    TestServer server;
    const std::string picture = base64_of(gradient(64, 64));
    struct Wrong {
        const char* path;
        json body;
        int status;
        const char* sentence;
    };
    const std::vector<Wrong> all = {
        {"txt2img", {{"prompt", 3}}, 400, "prompt is 3"},
        {"txt2img", {{"steps", "many"}}, 400, "steps is \"many\""},
        {"txt2img", {{"width", 16}, {"height", 64}}, 400, "width is 16"},
        {"txt2img", {{"width", 64}}, 400, "given together"},
        {"txt2img", {{"batch_size", 0}}, 400, "batch_size is 0"},
        {"txt2img", {{"batch_size", 64}, {"n_iter", 2}}, 400, "is 128, at most 64"},
        {"txt2img", {{"model", "sdxl"}}, 404, "there is no model 'sdxl'"},
        {"txt2img", {{"override_settings", {{"sd_model_checkpoint", "x [1]"}}}}, 404, "model 'x'"},
        {"txt2img", {{"prompt", "<lora:none:1>"}}, 400, "LoRA"},
        {"txt2img", json::array(), 400, "no JSON object"},
        {"img2img", json::object(), 400, "init_images has 0 pictures"},
        {"img2img", {{"init_images", {picture, picture}}}, 400, "init_images has 2 pictures"},
        {"img2img", {{"init_images", {"http://a/b.png"}}}, 400, "fetches no pictures"},
        {"img2img", {{"init_images", {"%%%"}}}, 400, "is no base64 of a picture"},
        {"img2img", {{"init_images", {"AAAA"}}}, 400, "init_images: is neither a PNG"},
        {"img2img", {{"init_images", {picture}}, {"mask", "AAAA"}}, 400, "mask: is neither a PNG"},
        {"img2img", {{"init_images", {picture}}, {"denoising_strength", 0}}, 400, "above 0 to 1"},
        {"img2img", {{"init_images", {picture}}, {"denoising_strength", 2}}, 400, "from 0 to 1"},
        {"img2img", {{"init_images", {picture}}, {"resize_mode", 7}}, 400, "resize_mode is 7"},
        {"options", {{"sd_model_checkpoint", "sdxl"}}, 404, "there is no model"},
        {"png-info", json::object(), 400, "image is missing"}};
    for (const Wrong& wrong : all) {
        const auto answer = server.post(std::string("/sdapi/v1/") + wrong.path, wrong.body);
        CAPTURE(answer.body.dump());
        CHECK(answer.status == wrong.status);
        CHECK(answer.body["detail"].get<std::string>().find(wrong.sentence) != std::string::npos);
        for (const char* key : {"error", "body", "errors"}) {
            CHECK(answer.body.contains(key));
        }
    }
}

TEST_CASE("no answer names a folder of the machine") {
    TestServer server;
    for (const char* path :
         {"sd-models", "sd-vae", "sd-modules", "loras", "options", "cmd-flags"}) {
        CHECK(server.get(std::string("/sdapi/v1/") + path).body.dump().find('/') ==
              std::string::npos);
    }
}

TEST_CASE("a picture is stretched, cropped or extended to another size") {
    using server::Fit;
    // Columns of 0, 100, 200 and 40.
    const Mask columns{4, 2, {0, 100, 200, 40, 0, 100, 200, 40}};
    CHECK(server::fitted(columns, 4, 2, Fit::stretch).values == columns.values);
    CHECK(server::fitted(columns, 2, 2, Fit::crop).values ==
          std::vector<uint8_t>{100, 200, 100, 200});
    CHECK(server::fitted(columns, 4, 4, Fit::extend).values ==
          std::vector<uint8_t>{0, 100, 200, 40, 0, 100, 200, 40, 0, 100, 200, 40, 0, 100, 200, 40});
    // Half as wide: weights 1, 3, 3, 1 of eight around the middle, the border repeated.
    CHECK(server::fitted(columns, 2, 1, Fit::stretch).values == std::vector<uint8_t>{63, 108});
    const Image one{1, 1, {7, 8, 9}};
    for (const Fit fit : {Fit::stretch, Fit::crop, Fit::extend}) {
        CHECK(server::fitted(one, 2, 1, fit).rgb == std::vector<uint8_t>{7, 8, 9, 7, 8, 9});
    }
}
