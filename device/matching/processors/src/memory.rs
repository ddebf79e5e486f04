//! The contents of the simulated machine's memory. [`crate::cache`] has the timing of accesses.

use thiserror::Error;

/// An access outside memory, which ends the simulation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error(
    "no memory at {address:#x}: the list or a pointer of the benchmark is damaged; memory ends at {end:#x}"
)]
pub struct OutsideMemory {
    /// The first byte of the access.
    pub address: u32,
    /// The first address after the end of memory.
    pub end: usize,
}

/// Bytes from address 0, big-endian as in PowerPC.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProcessorMemory {
    bytes: Vec<u8>,
}

impl ProcessorMemory {
    /// `size` bytes of zero.
    pub fn new(size: usize) -> Self {
        Self { bytes: vec![0; size] }
    }

    fn outside(&self, address: u32) -> OutsideMemory {
        OutsideMemory { address, end: self.bytes.len() }
    }

    fn read<const N: usize>(&self, address: u32) -> Result<[u8; N], OutsideMemory> {
        let at = address as usize;
        let bytes = self.bytes.get(at..at + N).ok_or_else(|| self.outside(address))?;
        bytes.try_into().map_err(|_| self.outside(address))
    }

    /// The 16-bit value at an address.
    ///
    /// # Errors The value is not completely inside.
    pub fn half(&self, address: u32) -> Result<u16, OutsideMemory> {
        self.read(address).map(u16::from_be_bytes)
    }

    /// The 32-bit value at an address.
    ///
    /// # Errors The value is not completely inside.
    pub fn word(&self, address: u32) -> Result<u32, OutsideMemory> {
        self.read(address).map(u32::from_be_bytes)
    }

    /// The 64-bit value at an address.
    ///
    /// # Errors The value is not completely inside.
    pub fn double(&self, address: u32) -> Result<u64, OutsideMemory> {
        self.read(address).map(u64::from_be_bytes)
    }

    /// Writes bytes at an address.
    ///
    /// # Errors The bytes are not completely inside.
    pub fn write(&mut self, address: u32, bytes: &[u8]) -> Result<(), OutsideMemory> {
        let at = address as usize;
        let outside = self.outside(address);
        self.bytes.get_mut(at..at + bytes.len()).ok_or(outside)?.copy_from_slice(bytes);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_big_endian_and_bounded() {
        let mut memory = ProcessorMemory::new(16);
        memory.write(4, &[1, 2, 3, 4, 5, 6, 7, 8]).unwrap();
        assert_eq!(memory.half(4), Ok(0x0102));
        assert_eq!(memory.word(4), Ok(0x0102_0304));
        assert_eq!(memory.double(4), Ok(0x0102_0304_0506_0708));
        assert_eq!(memory.word(13), Err(OutsideMemory { address: 13, end: 16 }));
        assert_eq!(memory.half(u32::MAX), Err(OutsideMemory { address: u32::MAX, end: 16 }));
        assert_eq!(memory.write(15, &[0; 2]), Err(OutsideMemory { address: 15, end: 16 }));
    }
}
