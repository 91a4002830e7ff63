"""Makes pairs of English and German sentences.

    python sentences.py train OUT.jsonl --count 60000 --seed 1
    python sentences.py test sentences.parquet --count 80 --seed 2

Articles, adjectives and nouns agree in gender, number and case; the finite verb
stands second in main clauses and last in subordinate ones; prefixes of verbs,
participles and infinitives go to the end. So the German word order cannot be had by
translating word by word.

A pair of a verb and its object's noun is held out by hash, one in ten: no training
sentence has it, every test sentence has one.
"""

import argparse
import hashlib
import json
import random

# English singular and plural, German singular and plural (with the dative plural's -n where it is regular), gender.
PERSONS = """teacher teachers Lehrer Lehrer m|doctor doctors Arzt Ärzte m|child children Kind Kinder n|woman women Frau Frauen f
man men Mann Männer m|friend friends Freund Freunde m|girl girls Mädchen Mädchen n|baker bakers Bäcker Bäcker m
engineer engineers Ingenieur Ingenieure m|gardener gardeners Gärtner Gärtner m|painter painters Maler Maler m
driver drivers Fahrer Fahrer m|queen queens Königin Königinnen f|nurse nurses Krankenschwester Krankenschwestern f
aunt aunts Tante Tanten f|daughter daughters Tochter Töchter f|son sons Sohn Söhne m|guest guests Gast Gäste m"""
THINGS = """book books Buch Bücher n|letter letters Brief Briefe m|table tables Tisch Tische m|lamp lamps Lampe Lampen f
house houses Haus Häuser n|car cars Auto Autos n|apple apples Apfel Äpfel m|flower flowers Blume Blumen f
key keys Schlüssel Schlüssel m|door doors Tür Türen f|picture pictures Bild Bilder n|bottle bottles Flasche Flaschen f
chair chairs Stuhl Stühle m|window windows Fenster Fenster n|cup cups Tasse Tassen f|coat coats Mantel Mäntel m
bag bags Tasche Taschen f|box boxes Kiste Kisten f|clock clocks Uhr Uhren f|bicycle bicycles Fahrrad Fahrräder n
song songs Lied Lieder n|map maps Karte Karten f|newspaper newspapers Zeitung Zeitungen f|ball balls Ball Bälle m
hat hats Hut Hüte m|gift gifts Geschenk Geschenke n|boat boats Boot Boote n|tree trees Baum Bäume m"""
ADJECTIVES = """small klein|big groß|old alt|new neu|red rot|blue blau|green grün|black schwarz|white weiß|heavy schwer|cheap billig
beautiful schön|clean sauber|empty leer|warm warm|cold kalt|long lang|strange seltsam|expensive teuer*|broken kaputt|light leicht|simple einfach"""
CHARACTER = "young jung|friendly freundlich|clever klug|famous berühmt|old alt|small klein|rich reich|poor arm|happy glücklich|quiet still"
NAMES = "Anna Peter Maria Thomas Julia Martin Laura Simon Clara Paul".split()
# English base, third person, past; German prefix, base, third person singular, plural, participle.
VERBS = """see sees saw - sehen sieht sehen gesehen|buy buys bought - kaufen kauft kaufen gekauft|find finds found - finden findet finden gefunden
sell sells sold - verkaufen verkauft verkaufen verkauft|need needs needed - brauchen braucht brauchen gebraucht
paint paints painted - malen malt malen gemalt|love loves loved - lieben liebt lieben geliebt|look_for looks_for looked_for - suchen sucht suchen gesucht
forget forgets forgot - vergessen vergisst vergessen vergessen|carry carries carried - tragen trägt tragen getragen
lose loses lost - verlieren verliert verlieren verloren|clean cleans cleaned - putzen putzt putzen geputzt
throw_away throws_away threw_away weg werfen wirft werfen geworfen|bring_along brings_along brought_along mit bringen bringt bringen gebracht
pick_up picks_up picked_up auf heben hebt heben gehoben|look_at looks_at looked_at an sehen sieht sehen gesehen
put_down puts_down put_down ab stellen stellt stellen gestellt|give_back gives_back gave_back zurück geben gibt geben gegeben"""
GIVING = """give gives gave - geben gibt geben gegeben|show shows showed - zeigen zeigt zeigen gezeigt|send sends sent - schicken schickt schicken geschickt
bring brings brought - bringen bringt bringen gebracht|lend lends lent - leihen leiht leihen geliehen|describe describes described - beschreiben beschreibt beschreiben beschrieben"""
TIMES = """today = heute|every day = jeden Tag|in the evening = am Abend|on Monday = am Montag|in summer = im Sommer|often = oft
now = jetzt|at noon = am Mittag|on Sunday = am Sonntag"""
PLACES = """in the garden = im Garten|in the kitchen = in der Küche|at the station = am Bahnhof|in the city = in der Stadt|at school = in der Schule
behind the house = hinter dem Haus|in front of the church = vor der Kirche|under the bridge = unter der Brücke|on the market = auf dem Markt|in the village = im Dorf"""
NUMBERS = "two zwei|three drei|four vier|five fünf|six sechs|seven sieben|eight acht|ten zehn"
LINKS = "because weil|although obwohl|when wenn|before bevor|while während"
SAYING = "says sagt|knows weiß|believes glaubt|hears hört|writes schreibt|hopes hofft"

split = lambda text: [entry.split() for line in text.split("\n") for entry in line.split("|")]
PERSONS, THINGS, ADJECTIVES, CHARACTER = map(split, (PERSONS, THINGS, ADJECTIVES, CHARACTER))
VERBS, GIVING, NUMBERS, LINKS, SAYING = map(split, (VERBS, GIVING, NUMBERS, LINKS, SAYING))
PHRASES = {name: [tuple(entry.split(" = ")) for line in text.split("\n") for entry in line.split("|")] for name, text in (("time", TIMES), ("place", PLACES))}

# Endings of the articles by case (nominative, accusative, dative) and of adjectives after them.
GENDERS = "mfnp"
DER = {"nom": ("der", "die", "das", "die"), "acc": ("den", "die", "das", "die"), "dat": ("dem", "der", "dem", "den")}
EIN = {"nom": ("", "e", "", "e"), "acc": ("en", "e", "", "e"), "dat": ("em", "er", "em", "en")}
DIESER = {"nom": ("er", "e", "es", "e"), "acc": ("en", "e", "es", "e"), "dat": ("em", "er", "em", "en")}
WEAK = {"nom": ("e", "e", "e", "en"), "acc": ("en", "e", "e", "en"), "dat": ("en", "en", "en", "en")}
MIXED = {"nom": ("er", "e", "es", "en"), "acc": ("en", "e", "es", "en"), "dat": ("en", "en", "en", "en")}
STRONG_PLURAL = {"nom": "e", "acc": "e", "dat": "en"}


def declined(adjective, ending):
    if adjective.endswith("*"):  # teuer, teure
        return adjective[:-3] + "r" + ending
    return adjective + ending


def noun_phrase(r, case, nouns, adjectives, rich=0.55):
    """English, German, whether it is plural, and the English noun."""
    if nouns is PERSONS and r.random() < 0.25:
        name = r.choice(NAMES)
        return name, name, False, name
    one, many, eins, viele, gender = r.choice(nouns)
    plural = r.random() < 0.3
    g = 3 if plural else GENDERS.index(gender)
    some = r.sample(adjectives, r.choice([1, 1, 2]) if r.random() < rich else 0)
    number = plural and r.random() < 0.4
    if number:
        article, artikel = r.choice(NUMBERS)
        ending = STRONG_PLURAL[case]
    else:
        kind = r.choice(["the", "the", "this", "my", "no", "your"] if plural else ["the", "the", "a", "a", "this", "my", "no", "every"])
        if kind == "the":
            article, artikel, table = "the", DER[case][g], WEAK
        elif kind in ("this", "every"):
            article, artikel, table = "these" if plural else kind, ("dies" if kind == "this" else "jed") + DIESER[case][g], WEAK
        else:
            article, artikel, table = kind, {"a": "ein", "my": "mein", "no": "kein", "your": "dein"}[kind] + EIN[case][g], MIXED
        ending = table[case][g]
    noun, nomen = (many, viele) if plural else (one, eins)
    if plural and case == "dat" and nomen[-1] not in "ns":
        nomen += "n"
    english = [article, *(a for a, _ in some), noun]
    if article == "a" and english[1][0] in "aeiou":
        english[0] = "an"
    return " ".join(english), " ".join([artikel, *(declined(a, ending) for _, a in some), nomen]), plural, one


def clause(r, last=False, depth=0):
    """English, German and the held-out keys; last: the finite verb stands last."""
    subject, subjekt, plural, _ = noun_phrase(r, "nom", PERSONS, CHARACTER, 0.35)
    giving = r.random() < 0.3
    base, third, past, prefix, infinitive, er, sie, participle = r.choice(GIVING if giving else VERBS)
    prefix = prefix.strip("-")
    objects, objekte = [], []
    thing, ding, _, noun = noun_phrase(r, "acc", THINGS, ADJECTIVES)
    particle = base.partition("_")[2]
    if giving:
        person, wem, _, _ = noun_phrase(r, "dat", PERSONS, CHARACTER, 0.3)
        objects, objekte = [person, thing], [wem, ding]
    else:
        objects, objekte = [*([particle] if particle else []), thing], [ding]
    tense = r.choice(["present", "present", "past", "past", "will", "can", "must", "wants"])
    verb, verb_de, end = None, None, []
    if tense == "present":
        verb, verb_de, end = base if plural else third, sie if plural else er, [prefix] if prefix else []
    elif tense == "past":
        verb, verb_de = past, "haben" if plural else "hat"
        end = [prefix + participle]
    else:
        verb = {"will": "will", "can": "can", "must": "must", "wants": "want to" if plural else "wants to"}[tense] + " " + base
        verb_de = {"will": ("wird", "werden"), "can": ("kann", "können"), "must": ("muss", "müssen"), "wants": ("will", "wollen")}[tense][plural]
        end = [prefix + infinitive]
    verb = verb.split("_")[0]
    when = r.choice(PHRASES["time"]) if r.random() < 0.45 else None
    where = r.choice(PHRASES["place"]) if r.random() < 0.35 else None
    first = when is not None and not last and r.random() < 0.5
    english = [*([when[0]] if first else []), subject, verb, *objects, *([where[0]] if where else []), *([when[0]] if when and not first else [])]
    middle = [*([when[1]] if when and not first else []), *objekte, *([where[1]] if where else [])]
    if last:
        if tense == "present" and prefix:
            german = [subjekt, *middle, prefix + verb_de]
        else:
            german = [subjekt, *middle, *end, verb_de]
    elif first:
        german = [when[1], verb_de, subjekt, *middle, *end]
    else:
        german = [subjekt, verb_de, *middle, *end]
    return " ".join(english), " ".join(german), [f"{base}/{noun}"]


def sentence(r):
    kind = r.random()
    if kind < 0.5:
        english, german, keys = clause(r)
    elif kind < 0.75:
        a, x, keys = clause(r)
        b, y, more = clause(r, last=True)
        link, bindung = r.choice(LINKS)
        english, german, keys = f"{a} {link} {b}", f"{x}, {bindung} {y}", keys + more
    else:
        who, wer, plural, _ = noun_phrase(r, "nom", PERSONS, CHARACTER, 0.2)
        while plural:
            who, wer, plural, _ = noun_phrase(r, "nom", PERSONS, CHARACTER, 0.2)
        says, sagt = r.choice(SAYING)
        b, y, keys = clause(r, last=True)
        english, german = f"{who} {says} that {b}", f"{wer} {sagt}, dass {y}"
    cap = lambda s: s[0].upper() + s[1:] + "."
    return cap(english), cap(german), keys


def held_out(key):
    return hashlib.sha256(key.encode()).digest()[0] % 10 == 0


def draw(r, test):
    while True:
        english, german, keys = sentence(r)
        if any(map(held_out, keys)) == test:
            return english, german


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("which", choices=["train", "test"])
    ap.add_argument("out")
    ap.add_argument("--count", type=int, required=True)
    ap.add_argument("--seed", type=int, required=True)
    a = ap.parse_args()
    r = random.Random(a.seed)
    rows = [draw(r, a.which == "test") for _ in range(a.count)]
    if a.which == "train":
        with open(a.out, "w") as f:
            f.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        return
    import pyarrow
    import pyarrow.parquet

    table = pyarrow.table({"id": [f"s{i:03d}" for i in range(a.count)], "english": [e for e, _ in rows], "german": [g for _, g in rows]})
    pyarrow.parquet.write_table(table, a.out, compression="zstd")


if __name__ == "__main__":
    main()
