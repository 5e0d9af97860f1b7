//! Models of the protocol, each of one part of it, visited in all their states.
//!
//! A move of a model is as much of a transaction as READ COMMITTED lets nobody come between: to take a
//! statement's snapshot, to wait for a lock and look at the row again, to commit. What stands in a snapshot
//! grows old while others move. Each model also comes with faults in the protocol, and every one of them
//! has to be found out, by the property that it breaks.
//!
//! * [`join`]: a parent, its children, and who wakes it (`run_wake.sql`, `run_sweep.sql`).
//!
//! Whoever changes one of the statements named here changes its model. States, moves and times are printed:
//! `cargo test --test model -- --nocapture`.

mod check;
mod join;
