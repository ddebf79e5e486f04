//! Builds the private QEMU tree, guest kernel, module and guest images into a cache.
