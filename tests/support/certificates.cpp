#include "support/certificates.hpp"

#include <doctest/doctest.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include <cstdio>
#include <memory>

namespace flux2::test {
namespace {

using Key = std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)>;
using Certificate = std::unique_ptr<X509, decltype(&X509_free)>;

struct CloseFile {
    void operator()(std::FILE* file) const { std::fclose(file); }
};
using File = std::unique_ptr<std::FILE, CloseFile>;

Key new_key() {
    return {EVP_EC_gen("P-256"), EVP_PKEY_free};
}

void add_extension(X509* certificate, X509* issuer, int kind, const std::string& value) {
    X509V3_CTX context;
    X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
    X509_EXTENSION* extension = X509V3_EXT_conf_nid(nullptr, &context, kind, value.c_str());
    REQUIRE(extension != nullptr);
    X509_add_ext(certificate, extension, -1);
    X509_EXTENSION_free(extension);
}

// Not signed yet. Without an issuer it is that of an authority.
Certificate new_certificate(const char* name, EVP_PKEY* key, X509* issuer) {
    Certificate certificate(X509_new(), X509_free);
    X509_set_version(certificate.get(), 2);
    ASN1_INTEGER_set(X509_get_serialNumber(certificate.get()), issuer == nullptr ? 1 : 2);
    X509_gmtime_adj(X509_getm_notBefore(certificate.get()), -60);
    X509_gmtime_adj(X509_getm_notAfter(certificate.get()), 3600);
    X509_set_pubkey(certificate.get(), key);
    X509_NAME* subject = X509_get_subject_name(certificate.get());
    X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_ASC,
                               reinterpret_cast<const unsigned char*>(name), -1, -1, 0);
    X509_set_issuer_name(certificate.get(),
                         issuer == nullptr ? subject : X509_get_subject_name(issuer));
    add_extension(certificate.get(), issuer == nullptr ? certificate.get() : issuer,
                  NID_basic_constraints, issuer == nullptr ? "critical,CA:TRUE" : "CA:FALSE");
    return certificate;
}

void write(const std::filesystem::path& path, X509* certificate) {
    const File file(std::fopen(path.c_str(), "w"));
    REQUIRE(PEM_write_X509(file.get(), certificate) == 1);
}

}  // namespace

Certificates make_certificates(const std::filesystem::path& folder, const std::string& address) {
    const Certificates files = {folder / "ca.pem", folder / "server.pem", folder / "server.key"};
    const Key authority_key = new_key();
    const Certificate authority = new_certificate("test authority", authority_key.get(), nullptr);
    REQUIRE(X509_sign(authority.get(), authority_key.get(), EVP_sha256()) > 0);
    const Key key = new_key();
    const Certificate server = new_certificate("test server", key.get(), authority.get());
    add_extension(server.get(), authority.get(), NID_subject_alt_name, "IP:" + address);
    REQUIRE(X509_sign(server.get(), authority_key.get(), EVP_sha256()) > 0);
    write(files.authority, authority.get());
    write(files.certificate, server.get());
    const File file(std::fopen(files.key.c_str(), "w"));
    REQUIRE(PEM_write_PrivateKey(file.get(), key.get(), nullptr, nullptr, 0, nullptr, nullptr) ==
            1);
    return files;
}

}  // namespace flux2::test
