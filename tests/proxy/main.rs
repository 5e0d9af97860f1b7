//! Tests behind a proxy that hands out server sessions transaction by transaction. A binary of its own, which
//! `cargo test` leaves out because it needs PgBouncer: `cargo test --test proxy`.

mod behind;
mod pgbouncer;
