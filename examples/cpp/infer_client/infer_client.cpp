// A client in C++ with nothing but libcurl: one request with binary tensors to a server of `dovetail serve`.
//
//   g++ -std=c++17 -O2 infer_client.cpp -lcurl -o infer_client
//   ./infer_client http://127.0.0.1:8000 0.9 0.1 0.2
//
// It asks the model `colours` of examples/models for the nearest of eight colours. The body is a JSON header and, right
// behind it, the bytes of the tensors; Inference-Header-Content-Length says where the header ends, both ways. DOVETAIL_KEY
// is sent as the API key where it is set.
#include <curl/curl.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>
#include <strings.h>
#include <vector>

namespace {

struct Response {
    std::string body;
    std::size_t header_bytes = 0;
};

std::size_t take_body(char* data, std::size_t size, std::size_t count, void* response) {
    static_cast<Response*>(response)->body.append(data, size * count);
    return size * count;
}

std::size_t take_header(char* data, std::size_t size, std::size_t count, void* response) {
    static const std::string name = "inference-header-content-length:";
    std::string line(data, size * count);
    if (strncasecmp(line.c_str(), name.c_str(), name.size()) == 0) {
        static_cast<Response*>(response)->header_bytes = std::strtoul(line.c_str() + name.size(), nullptr, 10);
    }
    return size * count;
}

class Client {
public:
    Client() : curl_(curl_easy_init()) {
        if (curl_ == nullptr) throw std::runtime_error("libcurl cannot be used");
    }
    ~Client() { curl_easy_cleanup(curl_); }
    Client(const Client&) = delete;
    Client& operator=(const Client&) = delete;

    // Posts a header and the bytes behind it. The connection stays open for the next request.
    Response post(const std::string& url, const std::string& header, const void* data, std::size_t size) {
        std::string body = header;
        body.append(static_cast<const char*>(data), size);
        curl_slist* headers = nullptr;
        headers = curl_slist_append(headers, ("Inference-Header-Content-Length: " + std::to_string(header.size())).c_str());
        headers = curl_slist_append(headers, "Content-Type: application/octet-stream");
        if (const char* key = std::getenv("DOVETAIL_KEY")) {
            headers = curl_slist_append(headers, (std::string("Authorization: Bearer ") + key).c_str());
        }
        Response response;
        curl_easy_setopt(curl_, CURLOPT_URL, url.c_str());
        curl_easy_setopt(curl_, CURLOPT_HTTPHEADER, headers);
        curl_easy_setopt(curl_, CURLOPT_POSTFIELDS, body.data());
        curl_easy_setopt(curl_, CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(body.size()));
        curl_easy_setopt(curl_, CURLOPT_WRITEFUNCTION, take_body);
        curl_easy_setopt(curl_, CURLOPT_WRITEDATA, &response);
        curl_easy_setopt(curl_, CURLOPT_HEADERFUNCTION, take_header);
        curl_easy_setopt(curl_, CURLOPT_HEADERDATA, &response);
        curl_easy_setopt(curl_, CURLOPT_TIMEOUT_MS, 10000L);
        const CURLcode code = curl_easy_perform(curl_);
        curl_slist_free_all(headers);
        if (code != CURLE_OK) throw std::runtime_error(curl_easy_strerror(code));
        long status = 0;
        curl_easy_getinfo(curl_, CURLINFO_RESPONSE_CODE, &status);
        if (status != 200) throw std::runtime_error("status " + std::to_string(status) + ": " + response.body);
        return response;
    }

private:
    CURL* curl_;
};

std::vector<float> read_floats(const Response& response) {
    if (response.header_bytes == 0 || response.header_bytes > response.body.size()) {
        throw std::runtime_error("the response has no binary output");
    }
    std::vector<float> values((response.body.size() - response.header_bytes) / sizeof(float));
    std::memcpy(values.data(), response.body.data() + response.header_bytes, values.size() * sizeof(float));
    return values;
}

}  // namespace

int main(int count, char** words) {
    if (count != 5) {
        std::fprintf(stderr, "usage: infer_client http://HOST:PORT RED GREEN BLUE\n");
        return 1;
    }
    static const char* const names[] = {"black", "red", "green", "yellow", "blue", "magenta", "cyan", "white"};
    const float rgb[] = {std::strtof(words[2], nullptr), std::strtof(words[3], nullptr), std::strtof(words[4], nullptr)};
    const std::string header =
        R"({"inputs":[{"name":"rgb","datatype":"FP32","shape":[1,3],"parameters":{"binary_data_size":12}}],)"
        R"("outputs":[{"name":"p","parameters":{"binary_data":true}}]})";
    try {
        Client client;
        const std::string url = std::string(words[1]) + "/v2/models/colours/infer";
        const std::vector<float> p = read_floats(client.post(url, header, rgb, sizeof rgb));
        if (p.size() != 8) throw std::runtime_error("the model gives another number of values");
        const auto best = std::max_element(p.begin(), p.end()) - p.begin();
        std::printf("%s %.3f\n", names[best], p[best]);
    } catch (const std::exception& error) {
        std::fprintf(stderr, "error: %s\n", error.what());
        return 2;
    }
    return 0;
}
