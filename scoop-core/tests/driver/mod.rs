//! Drives the protocol in memory, without a database, a clock or randomness. It works in the same order as the engine,
//! and so records the same rows.

mod audited;
mod notation;
mod parse;
mod script;
mod world;

pub(crate) use audited::{definitions, log};
pub(crate) use notation::recorded;
pub(crate) use parse::parse;
pub(crate) use script::{Code, Script};
pub(crate) use world::{Called, Memory, Row, World};
