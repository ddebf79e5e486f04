//! The kernel's random number generator.

use std::{fs::OpenOptions, io, mem::offset_of};

use niclab_agent::message::ENTROPY_BYTES;
use rustix::{
    ioctl::{NoArg, Opcode, Setter, ioctl, opcode},
    rand::{GetRandomFlags, getrandom},
};

/// `RNDADDENTROPY` and `RNDRESEEDCRNG` of the kernel's include/uapi/linux/random.h.
const ADD_ENTROPY: Opcode = opcode::write::<[i32; 2]>(b'R', 3);
const RESEED: Opcode = opcode::none(b'R', 7);

/// `struct rand_pool_info` of the same file, with its data.
#[repr(C)]
struct Pool {
    entropy_bits: i32,
    data_bytes: i32,
    data: [u8; ENTROPY_BYTES],
}

const _: () = assert!(offset_of!(Pool, data) == 8);

/// Mixes random bytes in, and makes all that is drawn from now on depend on them. A restored guest would otherwise draw
/// what every other guest draws that was restored from the same one.
pub fn mix(entropy: &[u8]) -> io::Result<()> {
    let generator = OpenOptions::new().write(true).open("/dev/urandom")?;
    for piece in entropy.chunks(ENTROPY_BYTES) {
        let mut data = [0; ENTROPY_BYTES];
        data[..piece.len()].copy_from_slice(piece);
        let bytes = i32::try_from(piece.len()).unwrap_or(0);
        let pool = Pool { entropy_bits: bytes * 8, data_bytes: bytes, data };
        // SAFETY: the operation reads two numbers, and then as many bytes as the second one says, all of them in
        // `pool`.
        unsafe { ioctl(&generator, Setter::<ADD_ENTROPY, Pool>::new(pool))? };
    }
    // SAFETY: the operation takes no argument.
    unsafe { ioctl(&generator, NoArg::<RESEED>::new())? };
    Ok(())
}

/// A new identity for `/etc/machine-id`: 32 hexadecimal digits (machine-id(5)).
pub fn machine_id() -> io::Result<String> {
    let mut bytes = [0; 16];
    // The kernel returns a request of this size completely or not at all.
    getrandom(&mut bytes, GetRandomFlags::empty())?;
    Ok(format!("{:032x}", u128::from_ne_bytes(bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_id_has_32_digits_and_is_no_others() {
        let (one, other) = (machine_id().unwrap(), machine_id().unwrap());
        assert!(
            one.len() == 32 && one.chars().all(|c| c.is_ascii_digit() || ('a'..='f').contains(&c)),
            "{one}"
        );
        assert_ne!(one, other);
    }

    #[test]
    fn the_operations_are_the_kernels() {
        assert_eq!((ADD_ENTROPY, RESEED), (0x4008_5203, 0x5207));
    }
}
