//! The engine's messages as JSON objects, field by field under the same names. Texts that are
//! not given are null, times are RFC 3339, stored JSON stands as it was written.

mod kinds;
mod operator;
mod registry;
mod session;

pub(crate) use kinds::Wire;
pub(crate) use operator::*;
pub(crate) use registry::*;
pub(crate) use session::*;

/// A JSON object with the fields of a message of the same name.
macro_rules! shown {
    ($($(#[$about:meta])* $name:ident {
        $( $(#[$note:meta])* $field:ident: $kind:ident $(<$inner:ident>)? ,)+
    })+) => {
        $(
            $(#[$about])*
            #[derive(Debug, serde::Serialize, utoipa::ToSchema)]
            pub(crate) struct $name {
                $( $(#[$note])* pub(crate) $field: $kind $(<$inner>)?, )+
            }

            impl From<undolog_proto::v1::$name> for $name {
                fn from(message: undolog_proto::v1::$name) -> Self {
                    Self { $( $field: $crate::rest::shown::Wire::wire(message.$field), )+ }
                }
            }

            impl $crate::rest::shown::Wire<undolog_proto::v1::$name> for $name {
                fn wire(message: undolog_proto::v1::$name) -> Self {
                    message.into()
                }
            }
        )+
    };
}
use shown;
