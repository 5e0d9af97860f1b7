//! Runs the example without a collector.

use std::process::Command;

#[test]
fn example_without_a_collector_prints_its_trace() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_telemetry"));
    let ran = command.env_remove("OTEL_EXPORTER_OTLP_ENDPOINT").output().unwrap();
    let (output, log) = (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    assert!(ran.status.success(), "{output}\n{log}");
    assert!(output.contains("run couriers"), "{output}");
}
