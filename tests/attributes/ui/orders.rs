// What the cases have in common: the prelude, a message and the value of a step.

use scoop::prelude::*;

#[derive(Message, Serialize, Deserialize)]
struct OrderPlaced;

#[derive(Serialize, Deserialize)]
struct Payment(u32);
