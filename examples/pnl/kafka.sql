-- Trades of a Kafka topic, enriched from tables, into a table and into another topic.
--
--   make demo KAFKA=1                          starts a broker and sends 40,000 trades through it
--   make kafka                                 a broker on localhost:9092, until Ctrl-C
--   millpond run examples/pnl/kafka.sql        runs it; MILLPOND_KAFKA_BROKERS names other brokers
--   millpond query "SELECT * FROM pnl"         queries it, from another terminal
--
-- The data is beside this file; PNL_DATA names another place.

CREATE STREAM trades (
    trade_id  BIGINT,
    user_id   BIGINT,
    symbol    STRING,
    quantity  BIGINT,
    price     DECIMAL(12, 2),
    traded_at TIMESTAMP
) WITH ('connector' = 'kafka://pnl-trades', 'topic.create.if.missing' = 'true');

CREATE TABLE symbols (symbol STRING, name STRING, sector STRING, PRIMARY KEY (symbol)) AS
SELECT symbol, name, sector FROM file://${PNL_DATA:-examples/pnl/data}/symbols.csv;

CREATE TABLE users (user_id BIGINT, name STRING, tier STRING, status STRING, PRIMARY KEY (user_id)) AS
SELECT user_id, name, tier, status FROM file://${PNL_DATA:-examples/pnl/data}/users.csv;

CREATE TABLE positions (
    user_id BIGINT, symbol STRING, shares BIGINT, paid DECIMAL(12, 2), PRIMARY KEY (user_id, symbol)
) AS
SELECT user_id, symbol, shares, CAST(paid AS DECIMAL(12, 2))
FROM file://${PNL_DATA:-examples/pnl/data}/positions.csv;

-- The enriched trades: a stream that others read by name.
CREATE STREAM enriched AS
SELECT
    t.trade_id,
    u.name AS trader,
    t.symbol,
    s.sector,
    t.quantity,
    t.price,
    CAST(t.quantity * (t.price - p.paid) AS DECIMAL(24, 2)) AS profit,
    t.traded_at
FROM trades t
JOIN symbols s ON s.symbol = t.symbol
JOIN users u ON u.user_id = t.user_id
LEFT JOIN positions p ON p.user_id = t.user_id AND p.symbol = t.symbol
WHERE u.status = 'active';

-- Into a topic, keyed by the symbol.
INSERT INTO kafka://pnl-enriched
SELECT symbol AS _key, trade_id, trader, symbol, sector, quantity, price, profit, traded_at FROM enriched
WITH ('topic.create.if.missing' = 'true');

-- And into tables that can be asked.
CREATE TABLE pnl (PRIMARY KEY (trade_id)) AS SELECT * FROM enriched;

CREATE TABLE by_trader AS
SELECT trader, COUNT(*) AS trades, SUM(profit) AS profit FROM enriched GROUP BY trader;
