//! Collective operations of groups, and their names.

use niclab_user::inic::{Element, Operator};

/// Operators of reductions, by name.
pub const OPERATORS: [(&str, Operator); 3] =
    [("sum", Operator::Sum), ("min", Operator::Min), ("max", Operator::Max)];
/// Element types of reductions, by name.
pub const ELEMENTS: [(&str, Element); 5] = [
    ("i32", Element::Signed32),
    ("i64", Element::Signed64),
    ("u32", Element::Unsigned32),
    ("u64", Element::Unsigned64),
    ("f64", Element::Double),
];

/// A collective operation of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    /// A barrier of all members.
    Barrier,
    /// A multicast by each member in turn.
    Multicast,
    /// A reduction of the values of all members.
    Reduce(Operator, Element),
}

impl std::fmt::Display for Task {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Barrier => formatter.write_str("barrier"),
            Self::Multicast => formatter.write_str("multicast"),
            Self::Reduce(operator, element) => {
                write!(formatter, "{} of {}", name_of(&OPERATORS, operator), name_of(&ELEMENTS, element))
            }
        }
    }
}

fn name_of<T: PartialEq>(table: &[(&'static str, T)], value: &T) -> &'static str {
    table.iter().find(|(_, own)| own == value).map_or("", |(name, _)| name)
}
