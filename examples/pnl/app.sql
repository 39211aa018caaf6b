-- Profit and loss of every trade, from five sources.
--
--   millpond demo                              sends 40,000 trades through it
--   millpond run examples/pnl/app.sql          runs it; the six trades below are in it
--   millpond query "SELECT * FROM pnl"         queries it, from another terminal
--
-- The data is beside this file; PNL_DATA names another place.

-- Trades come from programs (app.send), from INSERT, and later from a Kafka topic.
CREATE STREAM trades (
    trade_id  BIGINT,
    user_id   BIGINT,
    symbol    STRING,
    quantity  BIGINT,
    price     DECIMAL(12, 2),
    traded_at TIMESTAMP
);

-- Reference data.
CREATE TABLE symbols (symbol STRING, name STRING, sector STRING, PRIMARY KEY (symbol)) AS
SELECT symbol, name, sector FROM file://${PNL_DATA:-examples/pnl/data}/symbols.csv;

-- Who trades.
CREATE TABLE users (user_id BIGINT, name STRING, tier STRING, status STRING, PRIMARY KEY (user_id)) AS
SELECT user_id, name, tier, status FROM file://${PNL_DATA:-examples/pnl/data}/users.csv;

-- What they hold, and what they paid for it.
CREATE TABLE positions (
    user_id BIGINT, symbol STRING, shares BIGINT, paid DECIMAL(12, 2), PRIMARY KEY (user_id, symbol)
) AS
SELECT user_id, symbol, shares, CAST(paid AS DECIMAL(12, 2))
FROM file://${PNL_DATA:-examples/pnl/data}/positions.csv;

-- The market.
CREATE TABLE benchmarks (
    symbol STRING, close DECIMAL(12, 2), high DECIMAL(12, 2), change_pct DECIMAL(5, 2), PRIMARY KEY (symbol)
) AS
SELECT symbol, CAST(close AS DECIMAL(12, 2)), CAST(high AS DECIMAL(12, 2)), CAST(change_pct AS DECIMAL(5, 2))
FROM file://${PNL_DATA:-examples/pnl/data}/benchmarks.csv;

-- The answer: a table that follows the trades.
CREATE TABLE pnl (
    trade_id    BIGINT PRIMARY KEY,
    trader      STRING,
    symbol      STRING,
    sector      STRING,
    quantity    BIGINT,
    price       DECIMAL(12, 2),
    profit      DECIMAL(24, 2),
    year_high   DECIMAL(12, 2),
    top_close   DECIMAL(12, 2),
    cover       STRING,
    trend       STRING,
    above_peers BOOLEAN,
    traded_at   TIMESTAMP
);

INSERT INTO pnl
SELECT
    t.trade_id,
    u.name,
    t.symbol,
    s.sector,
    t.quantity,
    t.price,
    CAST(t.quantity * (t.price - p.paid) AS DECIMAL(24, 2)),
    (SELECT MAX(b.high) FROM benchmarks b WHERE b.symbol = t.symbol),
    (SELECT MAX(b.close) FROM benchmarks b),
    CASE
        WHEN EXISTS (
            SELECT 1 FROM positions h
            WHERE h.user_id = t.user_id AND h.symbol = t.symbol AND h.shares >= t.quantity
        ) THEN 'covered'
        ELSE 'short'
    END,
    CASE
        WHEN t.symbol IN (SELECT b.symbol FROM benchmarks b WHERE b.change_pct < 0) THEN 'falling'
        ELSE 'rising'
    END,
    t.price > ANY (
        SELECT b.close FROM benchmarks b JOIN symbols peer ON peer.symbol = b.symbol
        WHERE peer.sector = s.sector AND peer.symbol <> t.symbol
    ),
    t.traded_at
FROM trades t
JOIN symbols s ON s.symbol = t.symbol
JOIN users u ON u.user_id = t.user_id
LEFT JOIN positions p ON p.user_id = t.user_id AND p.symbol = t.symbol
WHERE EXISTS (SELECT 1 FROM users a WHERE a.user_id = t.user_id AND a.status = 'active');

-- A few trades to begin with; user 105 is not active, and 999 is nobody.
INSERT INTO trades VALUES
    (1, 101, 'ACME', 100, 132.50, '2026-01-05 09:30:00'),
    (2, 102, 'BOLT', 40, 88.10, '2026-01-05 09:30:01'),
    (3, 103, 'GRID', 250, 41.75, '2026-01-05 09:30:02'),
    (4, 101, 'TIDE', 10, 507.00, '2026-01-05 09:30:03'),
    (5, 105, 'ACME', 75, 131.90, '2026-01-05 09:30:04'),
    (6, 999, 'ACME', 5, 131.95, '2026-01-05 09:30:05');

SELECT trader, COUNT(*) AS trades, SUM(profit) AS profit, COUNT_IF(cover = 'short') AS short
FROM pnl GROUP BY trader ORDER BY profit DESC NULLS LAST;
