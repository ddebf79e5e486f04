//! Proves that the models, and the host's half of a port, use no operating system: neither a clock nor a socket.
//!
//! This library supplies the panic handler and the allocator that the standard library would otherwise bring. If
//! `niclab-model`, `niclab-port` or one of their dependencies links `std`, the compiler refuses this package with
//! "found duplicate lang item `panic_impl`". The check needs no extra target.

#![no_std]

use core::alloc::{GlobalAlloc, Layout};
use core::panic::PanicInfo;
use core::ptr;

// Links both packages completely.
extern crate niclab_model as _;
extern crate niclab_port as _;

struct NoMemory;

// SAFETY: a null pointer is the documented answer of an allocator without memory. It allocates nothing, so the caller
// never frees anything.
unsafe impl GlobalAlloc for NoMemory {
    unsafe fn alloc(&self, _: Layout) -> *mut u8 {
        ptr::null_mut()
    }
    unsafe fn dealloc(&self, _: *mut u8, _: Layout) {}
}

#[global_allocator]
static ALLOCATOR: NoMemory = NoMemory;

#[panic_handler]
fn stop(_: &PanicInfo<'_>) -> ! {
    loop {
        core::hint::spin_loop();
    }
}
