use scoop::prelude::*;

#[derive(Message, Serialize, Deserialize)]
#[message(keep = "a week")]
struct NoDuration;

#[derive(Message, Serialize, Deserialize)]
#[message(keep = "30m")]
struct BelowAnHour;

#[derive(Message, Serialize, Deserialize)]
#[message(keep = 30)]
struct NoString;

#[derive(Message, Serialize, Deserialize)]
#[message(keep(committed = "7 days", failed = "90 days"))]
struct AwaitsAnOperatorForATime;

#[derive(Message, Serialize, Deserialize)]
#[message(keep(committed = "59m", rolled_back = 30, failed))]
struct SeveralMistakes;

#[derive(Message, Serialize, Deserialize)]
#[message(keep(comitted = "7 days"))]
struct UnknownOutcome;

#[derive(Message, Serialize, Deserialize)]
#[message(keep())]
struct NoOutcome;

fn main() {}
