//! What keeps one client from exhausting a server. The number of connections is bounded, in total
//! and per address; a connection that sends no request, or does not read its answer, is closed; and
//! of the places for work no organisation and no key can have all.

mod connections;
mod counts;
mod held;
mod listener;
mod places;
mod stream;

pub use connections::{Connection, Connections};
pub use held::{Held, hold};
pub use listener::{Bounded, Peer, track};
pub use places::{Place, Places, Who};
pub use stream::{Activity, Stream};
