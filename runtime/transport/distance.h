// The options of a data connection that the kernel is told, by how far away its other end is. Any
// thread.
#pragma once

namespace hvd::runtime {

// Once, when the connection is made. Nothing that the kernel refuses is an error: the connection
// is slower then.
void suit_distance(int fd);

}  // namespace hvd::runtime
