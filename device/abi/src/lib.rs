//! What host and device share: config space, control messages, pages, slices, ioctls.
