-- Applies what strategies have decided about the messages that a run waits for; see scoop.decide_wait.
-- $1 root, $2 id, $3 epoch, $4 the decision
SELECT scoop.decide_wait($1, $2, $3, $4)
