-- The user's table that the measured steps write to.
CREATE TABLE public.entry (
    id   bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    saga bigint NOT NULL,
    step int NOT NULL
);
