//! Behind a proxy that hands out sessions of the server transaction by transaction. A binary of its
//! own, which `cargo test` leaves out since it needs PgBouncer: `cargo test --test proxy`.

mod behind;
mod pgbouncer;
#[path = "../it/support/mod.rs"]
#[allow(dead_code, unused_imports, reason = "the other binary uses the rest of it")]
mod support;
