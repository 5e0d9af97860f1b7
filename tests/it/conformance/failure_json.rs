//! Failures as JSON, and as errors again (scenarios CF).

use scoop::Frame;

use super::*;

/// Class and function of the place are unknown. The reference's own error type cannot leave them
/// out and shows them as `<unknown class>` and `<unknown function>`; we leave them out.
#[test]
fn cf_01_a_foreign_failure_as_an_error_keeps_type_and_source() {
    let json = r#"{
        "message": "Non-zero exit status returned from process",
        "type": "ExitStatus",
        "source": "external-system",
        "stackTrace": [
            {"fileName": "script.sh", "lineNumber": 42, "className": null, "functionName": null}
        ],
        "causes": []
    }"#;
    let foreign: Failure = serde_json::from_str(json).expect("a failure");
    let error = Error::failure(foreign.clone());
    assert_eq!(error.to_string(), "[external-system] ExitStatus: Non-zero exit status returned from process");
    let place =
        Frame { file_name: "script.sh".into(), line_number: 42, class_name: None, function_name: None };
    assert_eq!(foreign.stack_trace, [place]);
    assert!(format!("{error:?}").contains("at script.sh:42"), "{error:?}");
    assert_eq!(error.into_failure("another saga"), foreign);
}

#[derive(Debug, thiserror::Error)]
#[error("Test exception")]
struct RuntimeException(#[source] IllegalArgumentException);

#[derive(Debug, thiserror::Error)]
#[error("This is the cause")]
struct IllegalArgumentException;

/// The names of Rust types stand where the reference has those of classes.
#[test]
fn cf_02_error_is_unchanged_after_conversion_to_a_failure_and_json() {
    let error = Error::from(RuntimeException(IllegalArgumentException));
    let failure = error.into_failure("test-system");
    let [place] = &*failure.stack_trace else { panic!("{failure:?}") };
    let json = serde_json::to_string(&failure).expect("a failure is JSON");
    let (kind, line) = (std::any::type_name::<RuntimeException>(), place.line_number);
    let frame = format!(
        r#"{{"fileName":"{}","lineNumber":{line},"className":null,"functionName":null}}"#,
        place.file_name
    );
    let cause = r#"{"message":"This is the cause","type":"Error","source":"test-system","stackTrace":[],"causes":[]}"#;
    assert_eq!(
        json,
        format!(
            r#"{{"message":"Test exception","type":"{kind}","source":"test-system","stackTrace":[{frame}],"causes":[{cause}]}}"#
        )
    );

    let read: Failure = serde_json::from_str(&json).expect("a failure");
    let restored = Error::failure(read);
    assert_eq!(restored.to_string(), format!("[test-system] {kind}: Test exception"));
    assert_eq!(restored.into_failure("another-system"), failure);
}
