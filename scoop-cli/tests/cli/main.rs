//! The program on a real PostgreSQL: each command with its output, its JSON and its exit code.

mod changing;
mod checking;
mod checkout;
mod encrypted;
mod fields;
mod finding;
mod help;
mod http;
mod serving;
mod stranding;
mod support;
