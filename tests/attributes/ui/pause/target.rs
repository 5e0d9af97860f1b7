#![allow(unused)]
use scoop::pauses::IntoPauseTarget;

/// As the requests of operators, which need a feature.
fn pause(target: impl IntoPauseTarget) {}

fn pause_of_a_name() {
    pause("courier");
}

fn resume_of_a_name(saga: String) {
    pause(&saga);
}

struct Courier;

fn pause_of_a_saga() {
    pause(Courier);
}

fn main() {}
