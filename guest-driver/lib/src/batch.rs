//! Batches: one doorbell, which is an exit from the virtual machine, for several posts and releases.

use std::ops::{Deref, DerefMut};

/// A port, or a half of one, that can defer its doorbells.
///
/// In a batch, a deferred doorbell is rung when the requester page is full, before a call of this port waits or
/// flushes, and when the batch ends. If the program dies, the device finds its posts before it closes the port. A
/// program that polls by calls that never wait, or that waits at another port or at the other half, rings with
/// [`Batching::ring_deferred`].
pub trait Batching {
    /// Begins a batch. Batches may be nested; [`Batching::batch`] cannot forget the end.
    fn begin_batch(&mut self);

    /// Ends a batch. If it was the outermost one, rings the doorbell that is deferred.
    fn end_batch(&mut self);

    /// Rings the doorbell that is deferred. The batch goes on.
    fn ring_deferred(&mut self);

    /// A batch that ends with the returned value.
    ///
    /// ```no_run
    /// use niclab_user::{Batching as _, Error, slices::{Flags, Port}};
    ///
    /// # fn send_all(port: &mut Port, limit: std::time::Duration) -> Result<(), Error> {
    /// let mut batch = port.batch();
    /// for number in 0..32 {
    ///     batch.send(&[number], [0; 2], Flags::NONE, limit)?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    fn batch(&mut self) -> Batch<'_, Self>
    where
        Self: Sized,
    {
        self.begin_batch();
        Batch(self)
    }
}

/// Implements [`Batching`] for a type whose fields have the batches: `Type: field, field`, and after a
/// semicolon its generic parameters, if it has any.
macro_rules! batching_by_fields {
    ($type:ty: $($field:ident),+ $(; $($generics:tt)+)?) => {
        impl $(<$($generics)+>)? $crate::Batching for $type {
            fn begin_batch(&mut self) {
                $($crate::Batching::begin_batch(&mut self.$field);)+
            }

            fn end_batch(&mut self) {
                $($crate::Batching::end_batch(&mut self.$field);)+
            }

            fn ring_deferred(&mut self) {
                $($crate::Batching::ring_deferred(&mut self.$field);)+
            }
        }
    };
}

pub(crate) use batching_by_fields;

/// A batch of a port or half, which it stands for: [`Batching::batch`].
#[derive(Debug)]
pub struct Batch<'a, T: Batching + ?Sized>(&'a mut T);

impl<T: Batching + ?Sized> Deref for Batch<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0
    }
}

impl<T: Batching + ?Sized> DerefMut for Batch<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.0
    }
}

impl<T: Batching + ?Sized> Drop for Batch<'_, T> {
    fn drop(&mut self) {
        self.0.end_batch();
    }
}
