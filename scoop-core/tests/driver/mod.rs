//! Drives the protocol in memory: no database, no clock, no chance. It does what the engine does,
//! in its order, so that what is recorded here is what the engine would record.

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
