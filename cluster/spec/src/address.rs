//! Ethernet addresses as text, such as `02:00:00:00:00:01`.

use std::{fmt, str::FromStr};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use thiserror::Error;

/// An Ethernet address, spelled `02:00:00:00:00:01` in files and messages.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MacAddress(pub [u8; 6]);

impl MacAddress {
    /// The address of the node with this rank: locally administered, unicast, and the same in every run.
    #[must_use]
    pub const fn of_rank(rank: u16) -> Self {
        let [high, low] = rank.to_be_bytes();
        Self([0x02, b'n', b'l', 0x00, high, low])
    }
}

impl fmt::Display for MacAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl fmt::Debug for MacAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The text is not an Ethernet address.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("`{0}` is not an Ethernet address; write six pairs of hexadecimal digits, as in 02:00:00:00:00:01")]
pub struct NotAMacAddress(String);

impl FromStr for MacAddress {
    type Err = NotAMacAddress;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let bad = || NotAMacAddress(text.to_owned());
        let mut octets = [0; 6];
        let mut parts = text.split(':');
        for octet in &mut octets {
            let part = parts.next().filter(|p| p.len() == 2).ok_or_else(bad)?;
            // `from_str_radix` would take a sign.
            if !part.bytes().all(|b| b.is_ascii_hexdigit()) {
                return Err(bad());
            }
            *octet = u8::from_str_radix(part, 16).map_err(|_| bad())?;
        }
        if parts.next().is_some() { Err(bad()) } else { Ok(Self(octets)) }
    }
}

impl Serialize for MacAddress {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for MacAddress {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

impl JsonSchema for MacAddress {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "MacAddress".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "pattern": "^[0-9a-fA-F]{2}(:[0-9a-fA-F]{2}){5}$" })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn text_round_trips(octets: [u8; 6]) {
            let mac = MacAddress(octets);
            prop_assert_eq!(mac.to_string().parse::<MacAddress>(), Ok(mac));
        }
    }

    #[test]
    fn refuses_near_misses() {
        for text in [
            "",
            "02:00:00:00:00",
            "02:00:00:00:00:01:02",
            "2:0:0:0:0:1",
            "02-00-00-00-00-01",
            "+2:00:00:00:00:01",
        ] {
            assert!(text.parse::<MacAddress>().is_err(), "{text}");
        }
    }

    #[test]
    fn ranks_give_distinct_local_unicast_addresses() {
        let first = MacAddress::of_rank(0);
        assert_ne!(first, MacAddress::of_rank(1));
        assert_ne!(MacAddress::of_rank(1), MacAddress::of_rank(256));
        assert_eq!(first.0[0] & 0b11, 0b10, "locally administered, unicast");
    }
}
