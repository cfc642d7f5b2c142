//! io_uring, aligned buffers and block devices.
