"use strict";
// The pictures of a report. Numbers come from the JSON in #data; text is set as text, colours are classes of the stylesheet, so that a page
// follows the scheme of the screen and of paper without being drawn again.
(() => {
  const { element, number, filters } = globalThis.report;
  const data = JSON.parse(document.getElementById("data").textContent);
  const SIZES = ["bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
  const size = (bytes) => {
    let power = 0;
    while (Math.abs(bytes) >= 1023.95 && power + 1 < SIZES.length) { bytes /= 1024; power += 1; }
    return `${power ? bytes.toFixed(Math.abs(bytes) >= 99.95 ? 0 : 1) : number(bytes)} ${SIZES[power]}`;
  };
  const moment = (ms) => (ms === null ? "no time" : new Date(Number(ms)).toISOString().replace("T", " ").replace(/\.000Z$|Z$/, ""));
  const byteTicks = (most) => {
    const unit = 1024 ** Math.floor(Math.log2(Math.max(1, most)) / 10);
    return d3.ticks(0, most / unit, 6).map((tick) => tick * unit);
  };
  const counted = (count, noun) => `${number(count)} ${noun}${count === 1 ? "" : "s"}`;

  // --- what the pointer is at
  const tip = element("div", { className: "tip", hidden: true });
  document.body.append(tip);
  const explained = (selection, words) => selection
    .attr("aria-label", words)
    .on("pointerenter pointermove", (event, datum) => {
      tip.textContent = words(datum);
      tip.hidden = false;
      const left = Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8);
      const above = event.clientY + 18 + tip.offsetHeight > innerHeight;
      tip.style.left = `${Math.max(8, left) + scrollX}px`;
      tip.style.top = `${(above ? event.clientY - tip.offsetHeight - 10 : event.clientY + 16) + scrollY}px`;
    })
    .on("pointerleave", () => { tip.hidden = true; });

  const canvas = (place, height, label) => {
    const width = Math.max(320, place.clientWidth || 1280);
    const svg = d3.select(place).append("svg").attr("viewBox", `0 0 ${width} ${height}`).attr("role", "img").attr("aria-label", label);
    return { svg, width };
  };
  const section = (id) => document.getElementById(id);
  for (const partition of data.partitions) partition.name = partition.path.replace(/\/+$/, "").split("/").at(-1);

  // --- the segments of a partition, in offsets and in time
  const LEFT = 58, RIGHT = 10, BAR = 20;
  const drawPartition = (partition) => {
    const marks = partition.segments.map(([base, end, bytes, earliest, latest, verdict, count]) => ({
      base, end, bytes, earliest, latest, verdict, count, from: Number(base), to: Math.max(Number(end), Number(base)) }));
    const head = element("figcaption", {},
      element("b", {}, partition.name),
      ` ${counted(d3.sum(marks, (mark) => mark.count), "segment")}, ${size(d3.sum(marks, (mark) => mark.bytes))}` +
      (marks.length ? `, offsets ${marks[0].base} to ${marks.at(-1).end}` : ""));
    const times = marks.flatMap((mark) => [mark.earliest, mark.latest]).filter((time) => time !== null);
    const [begin, stop] = d3.extent(times);
    if (times.length) head.append(`, ${moment(begin)} to ${moment(stop)}`);
    if (partition.damage.length) head.append(element("span", { className: "hurt" }, counted(partition.damage.length, "damaged place")));
    const figure = element("figure", {}, head);
    figure.title = partition.path;
    section("segments").querySelector(".drawn").append(figure);
    if (!marks.length) return figure;
    const hasTimes = times.length && stop > begin;
    const epochs = partition.epochs.filter(([, , at]) => at !== null);
    const height = 50 + (hasTimes ? 48 : 0) + (hasTimes && epochs.length ? 20 : 0);
    const { svg, width } = canvas(figure, height, `Segments of ${partition.name}`);
    const lowest = d3.min(marks, (mark) => mark.from);
    const highest = Math.max(lowest + 1, d3.max(marks, (mark) => mark.to), ...partition.damage.map(([, , , , last]) => (last === null ? lowest : Number(last) + 1)));
    const offsets = d3.scaleLinear([lowest, highest], [LEFT, width - RIGHT]);
    const clock = hasTimes ? d3.scaleUtc([begin, stop], [LEFT, width - RIGHT]) : null;
    const words = (mark) => [
      mark.count > 1 ? `${number(mark.count)} segments from ${mark.base}` : `segment ${mark.base}`,
      `offsets ${mark.base} to ${mark.end}, ${size(mark.bytes)}`,
      mark.latest === null ? "no time" : `${moment(mark.earliest)} to ${moment(mark.latest)}`,
      ...(mark.verdict ? [mark.verdict === "delete" ? "retention deletes it" : "retention keeps it"] : []),
    ].join("\n");
    const bars = (of, y, from, to) => explained(
      svg.append("g").selectAll("rect").data(of).join("rect")
        .attr("class", (mark) => `segment ${mark.verdict} ${marks.indexOf(mark) % 2 ? "odd" : ""}`)
        .attr("x", from).attr("y", y).attr("height", BAR).attr("width", (mark) => Math.max(1.5, to(mark) - from(mark) - 1)), words);
    const label = (text, y) => svg.append("text").attr("class", "label").attr("x", 0).attr("y", y).text(text);
    label("offsets", 22);
    bars(marks, 8, (mark) => offsets(mark.from), (mark) => offsets(mark.to));
    svg.append("g").attr("class", "axis").attr("transform", `translate(0,${8 + BAR + 2})`).call(d3.axisBottom(offsets).ticks(width / 130).tickFormat(d3.format(",d")).tickSizeOuter(0));
    if (hasTimes) {
      label("time", 72);
      // short ones over long ones: where times are not in order, segments overlap
      const inTime = marks.filter((mark) => mark.earliest !== null).sort((a, b) => (b.latest - b.earliest) - (a.latest - a.earliest));
      bars(inTime, 58, (mark) => clock(mark.earliest), (mark) => clock(mark.latest));
      const down = epochs.length ? 18 : 0;
      svg.append("g").attr("class", "axis").attr("transform", `translate(0,${58 + BAR + 2 + down})`).call(d3.axisBottom(clock).ticks(width / 130).tickSizeOuter(0));
      if (epochs.length) {
        label("epochs", 92);
        const spans = epochs.map(([epoch, first, at], row) => ({ epoch, first, at, until: row + 1 < epochs.length ? epochs[row + 1][2] : stop }));
        const group = svg.append("g");
        const left = (span) => Math.max(LEFT, Math.min(width - RIGHT - 2, clock(span.at)));
        const wide = (span) => Math.max(2, clock(span.until) - clock(span.at) - 1);
        explained(group.selectAll("rect").data(spans).join("rect").attr("class", (_, row) => `epoch ${row % 2 ? "odd" : ""}`)
          .attr("x", left).attr("y", 82).attr("height", 13).attr("width", wide),
        (span) => `leader epoch ${span.epoch}\nfrom offset ${span.first}\n${moment(span.at)}`);
        group.selectAll("text").data(spans.filter((span) => wide(span) > 30)).join("text").attr("class", "in-bar").attr("x", (span) => left(span) + 4).attr("y", 92).text((span) => span.epoch);
      }
    }
    const places = partition.damage.map(([base, position, length, first, last, id]) => {
      const mark = marks.findLast((each) => each.from <= Number(base)) ?? marks[0];
      const share = (at) => (mark.bytes ? Math.min(1, at / mark.bytes) : 0);
      const between = (from, to, at) => Number(from) + (Number(to) - Number(from)) * share(at);
      return { base, position, length, first, last, id, mark,
        from: first === null ? between(mark.from, mark.to, position) : Number(first), to: last === null ? between(mark.from, mark.to, position + length) : Number(last) + 1,
        at: mark.earliest === null ? null : between(mark.earliest, mark.latest, position), until: mark.earliest === null ? null : between(mark.earliest, mark.latest, position + length) };
    });
    const hurt = (of, y, from, to) => {
      const group = svg.append("g");
      const left = (place) => Math.max(LEFT, Math.min(width - RIGHT - 3, from(place)));
      const told = (place) => `${place.id}\nsegment ${place.base}, bytes ${number(place.position)} to ${number(place.position + place.length)}` +
        (place.first === null ? "" : `\noffsets ${place.first} to ${place.last ?? "?"}`);
      explained(group.selectAll("rect").data(of).join("rect").attr("class", "damage").attr("x", left).attr("y", y - 2).attr("height", BAR + 4).attr("width", (place) => Math.max(3, to(place) - from(place))), told);
      explained(group.selectAll("path").data(of).join("path").attr("class", "damage").attr("d", "M-5,-7L5,-7L0,0Z").attr("transform", (place) => `translate(${left(place) + 1.5},${y - 1})`), told);
    };
    hurt(places, 8, (place) => offsets(Math.min(place.from, place.to)), (place) => offsets(place.to));
    if (hasTimes) hurt(places.filter((place) => place.at !== null), 58, (place) => clock(place.at), (place) => clock(place.until));
    return figure;
  };

  const DRAWN = 6;
  const drawSegments = () => {
    const place = section("segments");
    const found = data.partitions.filter((partition) => partition.segments.length);
    if (!found.length) return;
    place.hidden = false;
    const damaged = found.filter((partition) => partition.damage.length);
    const first = (damaged.length ? damaged : found).slice(0, damaged.length ? DRAWN : 3);
    first.forEach(drawPartition);
    const note = place.querySelector(".note");
    note.textContent = damaged.length > DRAWN ? `Drawn are ${DRAWN} of ${number(damaged.length)} partitions with damage in their logs; choose any other.`
      : damaged.length ? "Drawn are the partitions with damage in their logs." : `Drawn are the largest of ${counted(found.length, "partition")}.`;
    if (found.length > first.length) {
      const names = new Map(found.map((partition) => [partition.path, partition]));
      const input = place.querySelector("input");
      place.querySelector("datalist").append(...found.map((partition) => element("option", { value: partition.path }, partition.name)));
      const choose = () => {
        const chosen = names.get(input.value) ?? found.find((partition) => partition.name === input.value);
        if (!chosen) return;
        const figure = drawPartition(chosen);
        figure.parentElement.prepend(figure);
        input.value = "";
      };
      input.addEventListener("change", choose);
      place.querySelector(".tools").hidden = false;
    }
  };

  // --- how much each topic takes
  const MOST = 250;
  const drawTopics = () => {
    const place = section("topics");
    const total = d3.sum(data.topics, ([, partitions]) => d3.sum(partitions, (each) => each[1]));
    if (data.topics.length < 2 || !total) return;
    place.hidden = false;
    const told = data.topics.slice(0, MOST).map(([name, partitions]) => ({ name, partitions, bytes: d3.sum(partitions, (each) => each[1]), errors: d3.sum(partitions, (each) => each[2]),
      children: partitions.length > 40 ? undefined : partitions.map(([partition, bytes, errors]) => ({ name: partition, topic: name, bytes, errors })) }));
    const rest = data.topics.slice(MOST).flatMap(([, partitions]) => partitions);
    if (rest.length) told.push({ name: `${number(data.topics.length - MOST)} smaller topics`, partitions: rest, bytes: d3.sum(rest, (each) => each[1]), errors: d3.sum(rest, (each) => each[2]) });
    const height = 340;
    const { svg, width } = canvas(place.querySelector(".drawn"), height, "Bytes of each topic");
    const root = d3.hierarchy({ children: told }).sum((node) => (node.children ? 0 : node.bytes)).sort((a, b) => b.value - a.value);
    d3.treemap().size([width, height]).paddingOuter(1).paddingInner(1).paddingTop((node) => (node.depth === 1 ? 17 : 0)).round(true)(root);
    const topics = root.children.filter((node) => node.x1 - node.x0 > 1 && node.y1 - node.y0 > 1);
    const words = (node) => {
      const topic = node.depth === 1 ? node : node.parent;
      const lines = [`${topic.data.name}: ${size(topic.value)}, ${(100 * topic.value / total).toFixed(1)} % of all`, counted(topic.data.partitions.length, "partition")];
      if (node.depth === 2) lines.push(`${node.data.name}: ${size(node.value)}`);
      if (node.data.errors) lines.push(counted(node.data.errors, "error"));
      return lines.join("\n");
    };
    const cells = svg.selectAll("g").data(topics).join("g").attr("class", "topic").on("click", (_, node) => {
      if (!filters.verified && !filters.partitions) return;
      (filters.verified ?? filters.partitions)(node.data.name);
      section(filters.verified ? "verified" : "partitions").scrollIntoView();
    });
    const box = (selection) => selection.attr("x", (node) => node.x0).attr("y", (node) => node.y0).attr("width", (node) => Math.max(0, node.x1 - node.x0)).attr("height", (node) => Math.max(0, node.y1 - node.y0));
    explained(box(cells.append("rect").attr("class", (node) => `group ${node.data.errors ? "damage" : ""}`)), words);
    cells.each(function (node) {
      const leaves = (node.children ?? []).filter((leaf) => leaf.x1 > leaf.x0 && leaf.y1 > leaf.y0);
      explained(box(d3.select(this).selectAll("rect.leaf").data(leaves).join("rect").attr("class", (leaf) => `leaf ${leaf.data.errors ? "damage" : ""}`)), words);
      const room = node.x1 - node.x0 - 6;
      if (room < 26 || node.y1 - node.y0 < 15) return;
      const text = d3.select(this).append("text").attr("class", "name").attr("x", node.x0 + 4).attr("y", node.y0 + 12.5);
      const name = node.data.name, letters = Math.floor(room / 6.6);
      const whole = `${name}  ${size(node.value)}`;
      text.text(whole.length <= letters ? whole : name.length <= letters ? name : letters > 3 ? `${name.slice(0, letters - 1)}…` : "");
    });
  };

  // --- how batches are filled
  const drawBatches = () => {
    const codecs = data.codecs.filter((codec) => codec.batches);
    if (!codecs.length) return;
    const place = section("batches");
    place.hidden = false;
    const from = d3.min(codecs, (codec) => codec.by_size[0][0]), to = d3.max(codecs, (codec) => codec.by_size.at(-1)[0]);
    const buckets = d3.range(Math.min(from, to - 5), to + 1).map((power) => {
      const row = { power };
      for (const codec of codecs) row[codec.codec] = codec.by_size.find(([each]) => each === power)?.[1] ?? 0;
      return row;
    });
    const names = codecs.map((codec) => codec.codec);
    const drawn = place.querySelector(".drawn");
    const { svg, width } = canvas(drawn, 190, "Batches by size and codec");
    const x = d3.scaleBand(buckets.map((bucket) => bucket.power), [LEFT, width - RIGHT]).padding(0.12);
    const stacks = d3.stack().keys(names)(buckets);
    const y = d3.scaleLinear([0, d3.max(stacks.at(-1), (bar) => bar[1]) || 1], [160, 8]).nice();
    svg.append("g").attr("class", "axis").attr("transform", `translate(${LEFT},0)`).call(d3.axisLeft(y).ticks(4).tickFormat((value) => (Number.isInteger(value) ? d3.format(value >= 10000 ? ".2s" : ",d")(value) : "")).tickSizeOuter(0));
    svg.append("g").attr("class", "axis").attr("transform", "translate(0,162)").call(d3.axisBottom(x).tickFormat((power) => `< ${size(2 ** power)}`).tickSizeOuter(0));
    for (const stack of stacks) {
      explained(svg.append("g").selectAll("rect").data(stack.filter((bar) => bar[1] > bar[0])).join("rect").attr("class", `codec ${stack.key}`)
        .attr("x", (bar) => x(bar.data.power)).attr("width", x.bandwidth()).attr("y", (bar) => y(bar[1])).attr("height", (bar) => y(bar[0]) - y(bar[1])),
      (bar) => `${stack.key}: ${counted(bar[1] - bar[0], "batch").replace("batchs", "batches")}\nof ${size(2 ** (bar.data.power - 1))} to less than ${size(2 ** bar.data.power)}`);
    }
    const head = ["Codec", "Batches", "Bytes", "Batch, on average", "Records in a batch", "Records take of their uncompressed size"];
    const rows = codecs.map((codec) => {
      const share = codec.content_bytes ? `${(100 * codec.sampled_bytes / codec.content_bytes).toFixed(1)} % (of ${number(codec.sampled)} batches opened)` : codec.codec === "none" ? "100 %" : "";
      return element("tr", {}, element("td", {}, element("i", { className: `key codec ${codec.codec}` }), codec.codec),
        ...[number(codec.batches), size(codec.bytes), size(Math.round(codec.bytes / codec.batches)), (codec.records / codec.batches).toFixed(1), share].map((text) => element("td", { className: "n" }, text)));
    });
    drawn.append(element("table", { className: "small" }, element("thead", {}, element("tr", {}, ...head.map((text, at) => element("th", { className: at ? "of-numbers" : "" }, text)))), element("tbody", {}, ...rows)));
  };

  // --- what limits would free
  const UNITS = [[31557600000, "y"], [86400000, "d"], [3600000, "h"], [60000, "min"], [1000, "s"]];
  const span = (ms) => {
    const [unit, name] = UNITS.find(([each]) => ms >= each) ?? [1, "ms"];
    const whole = ms / unit;
    return `${whole >= 100 || Number.isInteger(whole) ? Math.round(whole) : whole.toFixed(1)} ${name}`;
  };
  const DURATIONS = [1, 1e3, 6e4, 6e5, 36e5, 216e5, 864e5, 2592e5, 6048e5, 2592e6, 7776e6, 31557600e3, 315576000e3];
  const RULES = { retention_ms: { name: "retention.ms", words: span, ticks: DURATIONS }, retention_bytes: { name: "retention.bytes", words: size, ticks: d3.range(0, 60, 10).flatMap((power) => [2 ** power, 2 ** (power + 4), 2 ** (power + 7)]) } };
  const drawLimits = () => {
    const found = (data.freed ?? []).filter((topic) => topic.retention_ms || topic.retention_bytes);
    if (!found.length) return;
    const place = section("limits");
    place.hidden = false;
    const [topics, rules] = place.querySelectorAll("select");
    const slider = place.querySelector("input");
    const drawn = place.querySelector(".drawn");
    topics.append(element("option", { value: "" }, "all topics"), ...data.freed.map(({ topic }, at) => element("option", { value: String(at) }, topic)));
    let scale, steps, total, cursor;
    const freedAt = (limit) => {
      const going = steps.filter(([greatest]) => greatest >= limit);
      return [d3.sum(going, ([, bytes]) => bytes), d3.sum(going, ([, , segments]) => segments)];
    };
    const answer = () => {
      if (!scale) return;
      const limit = Math.round(scale.invert(Number(slider.value)));
      const rule = RULES[rules.value], [bytes, segments] = freedAt(limit);
      place.querySelector(".answer").textContent = `${rule.name}=${limit} (${rule.words(limit)}) frees ${size(bytes)} of ${size(total)} (${total ? (100 * bytes / total).toFixed(1) : 0} %): ${counted(segments, "segment")}`;
      cursor?.attr("transform", `translate(${cursor.datum()(limit)},0)`);
    };
    const draw = () => {
      const wanted = topics.value === "" ? data.freed : [data.freed[Number(topics.value)]];
      total = d3.sum(wanted, (topic) => topic.bytes);
      steps = wanted.flatMap((topic) => topic[rules.value] ?? []).map(([limit, bytes, segments]) => [Number(limit), bytes, segments]).sort((a, b) => b[0] - a[0]);
      drawn.replaceChildren();
      scale = cursor = null;
      if (!steps.length) { place.querySelector(".answer").textContent = `${RULES[rules.value].name} frees nothing, whatever it is`; return; }
      const least = Math.max(1, steps.at(-1)[0] * 0.8), most = Math.max(2, steps[0][0] * 1.25, least * 2);
      scale = d3.scaleLog([least, most], [0, 1000]);
      const { svg, width } = canvas(drawn, 170, `What ${RULES[rules.value].name} would free`);
      const x = d3.scaleLog([least, most], [LEFT + 14, width - RIGHT]), y = d3.scaleLinear([0, total || 1], [140, 8]);
      let sum = 0;
      const points = [[most, 0]];
      for (const [limit, bytes] of steps) { points.push([limit, sum]); sum += bytes; points.push([limit, sum]); }
      points.push([least, sum]);
      svg.append("path").attr("class", "freed").attr("d", d3.area().x(([limit]) => x(Math.max(least, limit))).y0(140).y1(([, bytes]) => y(bytes))(points));
      const ticks = RULES[rules.value].ticks.filter((tick) => tick >= least && tick <= most);
      svg.append("g").attr("class", "axis").attr("transform", "translate(0,141)").call(d3.axisBottom(x).tickValues(ticks.length > 1 ? ticks : [least, Math.sqrt(least * most), most]).tickFormat(RULES[rules.value].words).tickSizeOuter(0));
      svg.append("g").attr("class", "axis").attr("transform", `translate(${LEFT + 12},0)`).call(d3.axisLeft(y).tickValues([0, total / 2, total]).tickFormat(size).tickSizeOuter(0));
      cursor = svg.append("g").datum(() => x).attr("class", "cursor");
      cursor.append("line").attr("y1", 4).attr("y2", 141);
      answer();
    };
    for (const each of [topics, rules]) each.addEventListener("change", draw);
    slider.addEventListener("input", answer);
    draw();
  };

  const drawCompactions = () => {
    const found = (data.compactions ?? []).map(([name, before, after, ratio]) => ({ name, before, after, ratio }));
    if (!found.length) return;
    const place = section("compactions");
    place.hidden = false;
    const slider = place.querySelector("input");
    const shown = found.slice(0, 15);
    const height = 22 * shown.length + 26;
    const { svg, width } = canvas(place.querySelector(".drawn"), height, "Bytes before and after a compaction");
    const names = Math.min(width / 3, 8 + 7 * d3.max(shown, (each) => each.name.length));
    const x = d3.scaleLinear([0, d3.max(shown, (each) => each.before)], [names, width - 90]);
    const rows = svg.selectAll("g").data(shown).join("g").attr("transform", (_, row) => `translate(0,${22 * row})`);
    rows.append("text").attr("class", "label").attr("x", 0).attr("y", 14).text((each) => (each.name.length * 7 > names ? `${each.name.slice(0, Math.floor(names / 7) - 1)}…` : each.name));
    const words = (each) => `${each.name}\n${size(each.before)} to ${size(each.after)}\n${(100 * each.ratio).toFixed(1)} % of it is dirty`;
    explained(rows.append("rect").attr("class", "going").attr("x", names).attr("y", 3).attr("height", 16).attr("width", (each) => x(each.before) - names), words);
    explained(rows.append("rect").attr("class", "staying").attr("x", names).attr("y", 3).attr("height", 16).attr("width", (each) => Math.max(1, x(each.after) - names)), words);
    rows.append("text").attr("class", "label").attr("x", (each) => x(each.before) + 6).attr("y", 15).text((each) => `−${(100 * (each.before - each.after) / each.before).toFixed(0)} %`);
    svg.append("g").attr("class", "axis").attr("transform", `translate(0,${22 * shown.length + 2})`).call(d3.axisBottom(x).tickValues(byteTicks(x.domain()[1])).tickFormat(size).tickSizeOuter(0));
    const answer = () => {
      const limit = Number(slider.value) / 100;
      const due = found.filter((each) => each.ratio > limit);
      rows.classed("not-due", (each) => each.ratio <= limit);
      place.querySelector(".answer").textContent = `min.cleanable.dirty.ratio=${limit.toFixed(2)}: ${counted(due.length, "partition")} of ${number(found.length)} compacted, ` +
        `${size(d3.sum(due, (each) => each.before - each.after))} of ${size(d3.sum(found, (each) => each.before))} saved`;
    };
    slider.addEventListener("input", answer);
    answer();
  };

  // --- what settings come to
  const drawSettings = () => {
    const found = data.settings ?? [];
    if (!found.length) return;
    const place = section("settings");
    place.hidden = false;
    const topics = place.querySelector("select");
    topics.append(...found.map(([topic], at) => element("option", { value: String(at) }, topic)));
    const drawn = place.querySelector(".drawn");
    const draw = () => {
      drawn.replaceChildren();
      const rows = found[Number(topics.value)][1].map(([kind, words, bytes, least, most, now, cpu]) => ({ kind, words, bytes: Number(bytes), least: Number(least), most: Number(most), now: Number(now), cpu }));
      const { svg, width } = canvas(drawn, 22 * rows.length + 26, `Settings of ${topics.selectedOptions[0].textContent}`);
      const names = Math.min(width * 0.45, 10 + 6.4 * d3.max(rows, (row) => row.words.length));
      const letters = Math.floor(names / 6.4) - 1;
      const x = d3.scaleLinear([0, d3.max(rows, (row) => Math.max(row.now, row.most))], [names, width - 120]);
      const groups = svg.selectAll("g").data(rows).join("g").attr("transform", (_, row) => `translate(0,${22 * row})`);
      groups.append("text").attr("class", "label").attr("y", 15).text((row) => (row.words.length > letters ? `${row.words.slice(0, letters - 1)}…` : row.words));
      const words = (row) => [row.words, `${size(row.bytes)}, ${row.least === row.most ? "exact" : `${size(row.least)} to ${size(row.most)}`}`, `now ${size(row.now)}`, ...(row.cpu === null ? [] : [`${row.cpu} s of CPU a GiB`])].join("\n");
      explained(groups.append("rect").attr("class", (row) => `tried ${row.kind}`).attr("x", names).attr("y", 4).attr("height", 15).attr("width", (row) => Math.max(1, x(row.bytes) - names)), words);
      groups.filter((row) => row.most > row.least).append("path").attr("class", "whisker").attr("d", (row) => `M${x(row.least)},11.5H${x(row.most)}M${x(row.least)},8v7M${x(row.most)},8v7`);
      groups.append("path").attr("class", "whisker now").attr("d", (row) => `M${x(row.now)},2v19`);
      groups.append("text").attr("class", "label").attr("x", (row) => Math.max(x(row.now), x(row.most)) + 6).attr("y", 15).text((row) => (row.now ? `${(100 * row.bytes / row.now).toFixed(1)} %${row.cpu === null ? "" : `, ${row.cpu} s`}` : ""));
      svg.append("g").attr("class", "axis").attr("transform", `translate(0,${22 * rows.length + 2})`).call(d3.axisBottom(x).tickValues(byteTicks(x.domain()[1])).tickFormat(size).tickSizeOuter(0));
    };
    topics.addEventListener("change", draw);
    draw();
  };

  // --- two copies on one offset axis
  const drawPair = (drawn, pair) => {
    const copies = pair.copies.map((copy, at) => copy && { letter: "AB"[at], ...copy, start: Number(copy.start), end: Number(copy.end) }).filter(Boolean);
    const lowest = d3.min(copies, (copy) => copy.start), highest = Math.max(lowest + 1, d3.max(copies, (copy) => copy.end));
    const apart = pair.differs_at === null ? null : Number(pair.differs_at);
    const figure = element("figure", {}, element("figcaption", {}, element("b", {}, pair.name), ` ${pair.verdict}`,
      apart === null ? "" : ` at offset ${pair.differs_at}`));
    drawn.append(figure);
    const { svg, width } = canvas(figure, 88, `The copies of ${pair.name}`);
    const x = d3.scaleLinear([lowest, highest], [LEFT, width - RIGHT]).clamp(true);
    const bar = (group, of, kind, y, height, words) => explained(group.append("g").selectAll("rect").data(of).join("rect").attr("class", kind)
      .attr("x", ([from]) => Math.min(x(from), width - RIGHT - 3)).attr("y", y).attr("height", height)
      .attr("width", ([from, to]) => Math.max(2, x(to) - x(from))), words);
    copies.forEach((copy) => {
      const group = svg.append("g").attr("class", `copy ${copy.letter}`).attr("transform", `translate(0,${copy.letter === "A" ? 4 : 32})`);
      group.append("text").attr("class", "label").attr("x", 0).attr("y", 16).text(copy.letter);
      const bases = copy.segments.map(Number).filter((base) => base < copy.end);
      const spans = (bases.length ? bases : [copy.start]).map((base, at) => [Math.max(base, copy.start), at + 1 < bases.length ? bases[at + 1] : copy.end, base]).filter(([from, to]) => to > from);
      bar(group, spans, "segment", 0, BAR, ([from, to, base]) => `${copy.letter}: segment ${base}\noffsets ${from} to ${to}`).classed("odd", (_, at) => at % 2 === 1);
      if (apart !== null && copy.end > apart) bar(group, [[apart, copy.end]], "apart", 0, BAR, () => `${copy.letter}: other records from offset ${apart} to ${copy.end}`);
      const ranges = (found) => found.map(([from, last]) => [Number(from), Number(last) + 1, from, last]);
      bar(group, ranges(copy.missing), "missing", 3, BAR - 6, ([, , from, last]) => `${copy.letter}: no records at offsets ${from} to ${last}`);
      bar(group, ranges(copy.damaged), "damage", -2, BAR + 4, ([, , from, last]) => `${copy.letter}: damaged, offsets ${from} to ${last}`);
    });
    svg.append("g").attr("class", "axis").attr("transform", "translate(0,58)").call(d3.axisBottom(x).ticks(width / 130).tickFormat(d3.format(",d")).tickSizeOuter(0));
  };

  const PAIRS_DRAWN = 6;
  const drawPairs = () => {
    const found = data.pairs ?? [];
    if (!found.length) return;
    const place = section("pairs");
    place.hidden = false;
    const drawn = place.querySelector(".drawn");
    found.slice(0, PAIRS_DRAWN).forEach((pair) => drawPair(drawn, pair));
    place.querySelector(".note").textContent = found.length > PAIRS_DRAWN ? `Drawn are ${PAIRS_DRAWN} of ${counted(found.length, "partition")}; choose any other.` : "Offsets from the earlier start to the later end.";
    if (found.length <= PAIRS_DRAWN) return;
    const others = place.querySelector("select");
    place.querySelector(".tools").hidden = false;
    others.append(element("option", { value: "" }, "Also draw"), ...found.slice(PAIRS_DRAWN).map((pair, at) => element("option", { value: String(at + PAIRS_DRAWN) }, pair.name)));
    others.addEventListener("change", () => {
      if (!others.value) return;
      drawPair(drawn, found[Number(others.value)]);
      others.selectedOptions[0].remove();
      others.value = "";
    });
  };

  drawPairs();
  drawSegments();
  drawSettings();
  drawLimits();
  drawCompactions();
  drawTopics();
  drawBatches();
})();
