// The algorithm lists of ssh_config, in the notation of libssh: a libssh before 0.11 takes no list
// that changes its default list. Pure.
#pragma once

#include <string>
#include <string_view>

namespace hvd::driver::ssh {

// The default lists of libssh, which has no call that returns them.
inline constexpr std::string_view kDefaultKexAlgorithms =
    "curve25519-sha256,curve25519-sha256@libssh.org,ecdh-sha2-nistp256,ecdh-sha2-nistp384,"
    "ecdh-sha2-nistp521,diffie-hellman-group18-sha512,diffie-hellman-group16-sha512,"
    "diffie-hellman-group-exchange-sha256,diffie-hellman-group14-sha256";
inline constexpr std::string_view kDefaultCiphers =
    "chacha20-poly1305@openssh.com,aes256-gcm@openssh.com,aes128-gcm@openssh.com,aes256-ctr,"
    "aes192-ctr,aes128-ctr";
inline constexpr std::string_view kDefaultMacs =
    "hmac-sha2-256-etm@openssh.com,hmac-sha2-512-etm@openssh.com,hmac-sha2-256,hmac-sha2-512";
inline constexpr std::string_view kDefaultPubkeyAlgorithms =
    "ssh-ed25519,ecdsa-sha2-nistp521,ecdsa-sha2-nistp384,ecdsa-sha2-nistp256,"
    "sk-ssh-ed25519@openssh.com,sk-ecdsa-sha2-nistp256@openssh.com,rsa-sha2-512,rsa-sha2-256";

// The list that `configured` stands for: itself, or `defaults` with more names at the end ("+a,b"),
// without some ("-a,b"), or with some at the beginning ("^a,b"). Names may be patterns. libssh
// leaves out names that it does not know.
std::string complete_algorithms(std::string_view configured, std::string_view defaults);

}  // namespace hvd::driver::ssh
