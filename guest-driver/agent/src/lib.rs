//! The guest agent and its protocol: runs commands for the launcher over virtio-serial.
