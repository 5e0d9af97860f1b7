use scoop::prelude::*;

#[derive(Message, Serialize, Deserialize)]
#[message(retention = "a week")]
struct NoDuration;

#[derive(Message, Serialize, Deserialize)]
#[message(retention = "30m")]
struct BelowAnHour;

#[derive(Message, Serialize, Deserialize)]
#[message(retention = 30)]
struct NoString;

#[derive(Message, Serialize, Deserialize)]
#[message(retention(committed = "7 days", failed = "90 days"))]
struct AwaitsAnOperatorForATime;

#[derive(Message, Serialize, Deserialize)]
#[message(retention(committed = "59m", rolled_back = 30, failed))]
struct SeveralMistakes;

#[derive(Message, Serialize, Deserialize)]
#[message(retention(comitted = "7 days"))]
struct UnknownOutcome;

#[derive(Message, Serialize, Deserialize)]
#[message(retention())]
struct NoOutcome;

fn main() {}
