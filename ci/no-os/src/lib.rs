//! Proof that the models, and the host's half of a port, reach neither a clock nor a socket: a library that is its own
//! operating system.
//!
//! It supplies the panic handler and the allocator that the standard library would otherwise bring. Should
//! `niclab-model` or `niclab-port`, or anything that they depend on, link `std`, the compiler refuses this package with
//! "found duplicate lang item `panic_impl`". No extra target has to be installed for that.

#![no_std]

use core::alloc::{GlobalAlloc, Layout};
use core::panic::PanicInfo;
use core::ptr;

// Linked in whole; these are what this package is about.
extern crate niclab_model as _;
extern crate niclab_port as _;

struct NoMemory;

// SAFETY: a null pointer is the documented answer of an allocator that has no memory; nothing is ever handed out, so
// that nothing is ever freed.
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
